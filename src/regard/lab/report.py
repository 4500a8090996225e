"""What the lab found, as one page that needs no network, as Markdown and as JSON."""

import base64
import datetime
import hashlib
import math
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from regard.lab.charts import DARK, STYLE, Chart, Row, Series, curves, intervals
from regard.lab.claim import Claim, Figure, Judged, Points
from regard.lab.registry import claim_ids, find_claim
from regard.lab.runner import ClaimResult
from regard.reporting import Json

WORDS = ("confirmed", "refuted", "depends", "undecided", "failed")


def page_data(results: Sequence[ClaimResult]) -> Json:
    """Everything as JSON, with what was measured on."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return {
        "date": date,
        "hardware": sorted({result.hardware for result in results}),
        "claims": [result.json() for result in results],
    }


def missing_claims(results: Sequence[ClaimResult]) -> list[Claim]:
    """Claims without a result here."""
    done = {result.claim.id for result in results}
    return [find_claim(name) for name in claim_ids() if name not in done]


def counts(results: Sequence[ClaimResult]) -> str:
    """`exact claims: 7 confirmed, 2 depend; screens: …`."""
    parts = []
    for kind, name in (("exact", "verdicts"), ("screen", "screens"), ("text", "verdicts on text")):
        own = [result.verdict or "failed" for result in results if result.claim.kind == kind]
        each = [f"{own.count(word)} {word}" for word in WORDS if word in own]
        parts += [f"{name}: {', '.join(each)}"] if own else []
    return "; ".join(parts)


def prose(text: str) -> str:
    """A sentence as HTML: `code`, and d_k with its index below."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\bd_([kv])\b", r"d<sub>\1</sub>", text)


# --- charts --------------------------------------------------------------------------------------------------------


def charts(result: ClaimResult) -> list[str]:
    """The predictions with their intervals, then the claim's own figures, as SVG."""
    rows = [_row(each) for each in result.judged]
    drawn = [intervals(rows, "Measured, and predicted (shaded)")] if rows else []
    return drawn + [chart for figure in result.claim.figures if (chart := _figure(figure, result))]


def _row(judged: Judged) -> Row:
    p, interval = judged.prediction, judged.interval
    return Row(
        p.quantity, interval.mean, interval.low, interval.high, f"{judged.measured} · {judged.verdict}",
        (p.low, p.high), judged.values,
    )  # fmt: skip


def _figure(figure: Figure, result: ClaimResult) -> str:
    """Curves averaged over seeds, with the least and the most of them as a band."""
    lines: dict[str, list[Points]] = {}
    for measurement in result.measurements:
        for name, points in measurement.curves.get(figure.name, {}).items():
            lines.setdefault(name, []).append(points)
    series = []
    for name, seeds in lines.items():
        x = [point[0] for point in seeds[0]]
        values = [[points[n][1] for points in seeds] for n in range(len(x))]
        mean = [math.fsum(each) / len(each) for each in values]
        series.append(Series(name, x, mean, [*map(min, values)], [*map(max, values)]))
    if not series:
        return ""
    return curves(Chart(figure.title, figure.x_label, figure.y_label, series, figure.log_x, figure.log_y, figure.names))


# --- the page ------------------------------------------------------------------------------------------------------


def html_page(results: Sequence[ClaimResult]) -> str:
    """One file: it asks for nothing over a network, and runs no script."""
    data = page_data(results)
    style = (files("regard.lab") / "report.css").read_text(encoding="utf-8")
    css = f"{STYLE}@media (prefers-color-scheme: dark) {{ .chart {{{DARK}}} }}{style}"
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    rows = "".join(_summary(result) for result in results)
    articles = "".join(_article(result) for result in results)
    missing = "".join(_missing(claim) for claim in missing_claims(results))
    later = f"<h2>Not run here</h2><ul class='planned'>{missing}</ul>" if missing else ""
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>regard lab</title>\n'
        f"<style>{css}</style>\n<body><main>\n<h1>Is it true, what is said of attention?</h1>\n"
        f"<p class='lead'>Each claim has predictions, inequalities written before the run. It is confirmed or refuted "
        f"only where the 95% interval over paired seeds lies wholly on one side, and depends where two settings have "
        f"opposite outcomes; where the interval straddles, or a control fails, it is undecided. A <em>screen</em> is a "
        f"tiny model on a constructed task or on the embedded corpus: it says what to expect, and is no verdict on "
        f"text.</p>\n"
        f"<p class='facts'>{escape(counts(results))}<br>{escape('; '.join(data['hardware']))} · {data['date']}</p>\n"
        f"<nav><table>{rows}</table></nav>\n{articles}\n{later}\n</main></body></html>\n"
    )


def _badge(result: ClaimResult) -> str:
    word = "failed" if result.error else str(result.verdict)
    return f"<span class='badge {word}'>{escape(result.outcome)}</span>"


def _summary(result: ClaimResult) -> str:
    claim = result.claim
    return (
        f"<tr><td>{claim.id}</td><td><a href='#{result.name}'>{prose(claim.title)}</a></td>"
        f"<td>{_badge(result)}</td></tr>"
    )


def _article(result: ClaimResult) -> str:
    claim = result.claim
    rows = "".join(
        f"<tr><td>{prose(each.prediction.sentence)}"
        f"{f' <small>{escape(each.prediction.place)}</small>' if each.prediction.place else ''}</td>"
        f"<td>{escape(each.prediction.inequality)}</td><td>{escape(each.measured)}</td>"
        f"<td class='{each.verdict}'>{each.verdict}</td></tr>"
        for each in result.judged
    )
    table = (
        "<div class='wide'><table class='numbers'><thead><tr><th>the number</th><th>predicted</th>"
        f"<th>measured, 95%</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    problem = f"<p class='failed'>It could not be measured: {escape(result.error)}</p>" if result.error else ""
    figures = "".join(f"<figure>{svg}</figure>" for svg in charts(result))
    full = f"regard lab run {claim.id} --budget full"
    commands = [full] if claim.kind == "text" else [f"regard lab run {claim.id}", *([full] if claim.on_text else [])]
    reason = f"<p>Not on text: {prose(claim.why_not_on_text)}.</p>" if claim.why_not_on_text else ""
    faults = "".join(
        f"<li><code>regard lab run {claim.id} --fault '{escape(name)}'</code> {escape(meaning)}</li>"
        for name, meaning in claim.faults.items()
    )
    return (
        f"<article id='{result.name}'><h2><small>{claim.id}</small> {prose(claim.title)} {_badge(result)}</h2>"
        f"<blockquote>{prose(claim.sentence)}<cite>{escape(claim.source)}</cite></blockquote>{problem}"
        f"{table if result.judged else ''}<div class='figures'>{figures}</div>"
        f"<h3>What it depends on</h3><p>{prose(claim.depends_on)}</p>{reason}"
        f"<details><summary>Run it yourself</summary><pre>{escape(chr(10).join(commands))}</pre>"
        f"{'<p>A fault planted on purpose must turn the verdict:</p><ul>' + faults + '</ul>' if faults else ''}"
        f"<p>{len(result.measurements)} seeds, {result.seconds:.1f} s of "
        f"{'training' if claim.kind == 'text' else 'CPU'}</p></details></article>\n"
    )


def _missing(claim: Claim) -> str:
    return f"<li id='{claim.id}'><b>{claim.id}</b> {prose(claim.sentence)} <code>regard lab run {claim.id}</code></li>"


# --- Markdown ------------------------------------------------------------------------------------------------------


def markdown_report(results: Sequence[ClaimResult]) -> str:
    """A table of claims, and one of their predictions."""
    data = page_data(results)
    lines = ["# regard lab", "", f"{counts(results)}.", "", f"{'; '.join(data['hardware'])}; {data['date']}.", ""]
    lines += ["| claim | | outcome | seeds |", "|---|---|---|---|"]
    for result in results:
        claim = result.claim
        lines.append(f"| {claim.id} | {_cell(claim.sentence)} | {result.outcome} | {len(result.measurements)} |")
    lines += ["", "| claim | number | predicted | measured, 95% | |", "|---|---|---|---|---|"]
    for result in results:
        for each in result.judged:
            p = each.prediction
            setting = f" ({p.place})" if p.place else ""
            row = (result.claim.id, p.sentence + setting, p.inequality, each.measured, each.verdict)
            lines.append("| " + " | ".join(map(_cell, row)) + " |")
    if missing := missing_claims(results):
        lines += ["", "Not run here:", "", *(f"- {other.id}: {other.sentence}" for other in missing)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
