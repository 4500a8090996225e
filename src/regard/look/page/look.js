/* regardLook(element, data, {language: "en" | "zh", compact: false}) shows what `regard.look.look` and
`look_pair` give.

One function, no other name outside, no framework, no network; styles are look.css, under .regard-look. The files of this
folder are one script, in the order of `regard/look/html.py`, which puts them into a function. */
globalThis.regardLook = (element, data, options = {}) => new (data.looks ? Pair : Look)(element, data, options);
