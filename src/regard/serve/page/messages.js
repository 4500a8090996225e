/* What the page says, in English and 中文, and the examples it offers. */

const en = {
  other: "中文", tabs: "What the models can do", model: "Model", try: "Try", copy: "Copy", copied: "Copied", clear: "Clear",
  close: "Close", stop: "Stop", api: "API", about: "Models and text stay on this server.",
  translate: "Translate", chat: "Chat", story: "Story", fill: "Fill gaps", classify: "Classify", tag: "Tags", answer: "Answers",
  choose: "Choices",
  away: "The server does not answer. Trying again…", busy: "The server is busy. Asking again in {seconds} s…",
  locked: "The server wants a key; without it, it says nothing.", failed: "The server could not do that (code {code}).",
  garbled: "The server's answer could not be read.", broken: "The connection broke off in the middle of the answer.",
  nothing: "No model here does what this page shows; the API may still serve it.",
  "key.title": "This server asks for a key", "key.wrong": "That key was not accepted", "key.label": "API key",
  "key.why": "It is kept until this tab is closed.", "key.send": "Continue",
  "translate.text": "Text to translate", "translate.hint": "Write or paste here, a sentence a line",
  "translate.result": "Translation", "translate.other": "Alternatives", "translate.all": "Copy everything",
  "translate.score": "Score: the nearer to 0, the surer", "look.open": "Attention", "look.title": "Attention",
  "look.words": "Arrow keys go from word to word and show what each attended to",
  "look.hint": "Point at a word, or tap it, to see what it attends to: the mean of all layers and heads.",
  "look.to": "{word} looks at {seen}", "look.from": "{word} looks at {seen}; seen by {by}",
  "chat.text": "Message", "chat.hint": "Say something", "chat.send": "Send", "chat.new": "New conversation",
  "chat.log": "Conversation", "chat.empty": "A conversation begins with you.", "chat.you": "You", "chat.it": "Model",
  "story.text": "Beginning", "story.hint": "Begin a text; the model goes on", "story.write": "Write", "story.more": "Go on",
  "story.result": "The text", "story.options": "How to write", "story.length": "Length (tokens)", "story.temperature": "Temperature",
  "story.top": "Top p", "story.seed": "Seed",
  "fill.text": "Text with gaps", "fill.hint": "Paris is the [MASK] of France.", "fill.gap": "Insert a gap",
  "fill.none": "Write [MASK] or ___ where a word is missing.", "fill.number": "Gap {n}",
  "classify.text": "Text", "classify.hint": "A text to judge", "classify.value": "Value",
  "tag.text": "Text", "tag.hint": "A sentence; its words are what stands between spaces",
  "answer.question": "Question", "answer.context": "Text that may answer it", "answer.none": "The text does not say.",
  "choose.context": "Text", "choose.question": "Question", "choose.options": "Options, one a line",
  "choose.few": "Two options at least, one a line.",
};

const zh = {
  other: "English", tabs: "模型能做什么", model: "模型", try: "试试", copy: "复制", copied: "已复制", clear: "清空",
  close: "关闭", stop: "停止", api: "API 接口", about: "模型和文本都留在这台服务器上。",
  translate: "翻译", chat: "对话", story: "续写", fill: "填空", classify: "分类", tag: "标注", answer: "问答", choose: "选择",
  away: "服务器没有回应，正在重试……", busy: "服务器正忙，{seconds} 秒后再试……",
  locked: "服务器需要密钥；没有密钥就不会回答。", failed: "服务器未能完成请求（代码 {code}）。",
  garbled: "无法读懂服务器的回答。", broken: "回答到一半，连接断开了。",
  nothing: "这里的模型没有可在页面上展示的功能；接口也许仍可使用。",
  "key.title": "这台服务器需要密钥", "key.wrong": "密钥未被接受", "key.label": "API 密钥",
  "key.why": "密钥只保留到此标签页关闭为止。", "key.send": "继续",
  "translate.text": "要翻译的文本", "translate.hint": "在此输入或粘贴，每行一句",
  "translate.result": "译文", "translate.other": "其他译法", "translate.all": "复制全部",
  "translate.score": "得分：越接近 0 越有把握", "look.open": "注意力", "look.title": "注意力",
  "look.words": "用方向键逐词移动，查看每个词关注什么",
  "look.hint": "指向或点按一个词，看它关注什么（各层各头的平均）。",
  "look.to": "{word} 关注 {seen}", "look.from": "{word} 关注 {seen}；被 {by} 关注",
  "chat.text": "消息", "chat.hint": "说点什么", "chat.send": "发送", "chat.new": "新对话",
  "chat.log": "对话", "chat.empty": "对话由你开始。", "chat.you": "你", "chat.it": "模型",
  "story.text": "开头", "story.hint": "写个开头，模型接着写", "story.write": "写下去", "story.more": "继续写",
  "story.result": "全文", "story.options": "写作设置", "story.length": "长度（词元）", "story.temperature": "温度",
  "story.top": "Top p", "story.seed": "随机种子",
  "fill.text": "带空位的文本", "fill.hint": "Paris is the [MASK] of France.", "fill.gap": "插入空位",
  "fill.none": "在缺词处写 [MASK] 或 ___。", "fill.number": "第 {n} 空",
  "classify.text": "文本", "classify.hint": "要判断的文本", "classify.value": "数值",
  "tag.text": "文本", "tag.hint": "一个句子；词以空格分开",
  "answer.question": "问题", "answer.context": "可能含有答案的文本", "answer.none": "文本中没有答案。",
  "choose.context": "文本", "choose.question": "问题", "choose.options": "选项，每行一个",
  "choose.few": "至少要有两个选项，每行一个。",
};

export const MESSAGES = { en, zh };

const SEA = "The lighthouse was built in 1858 by Anna Berg. It stands on a cliff above the harbour, " +
  "and its lamp can be seen from twenty miles away.";

/** By tab; where a tab has several fields, an example has a value for each, and its first is shown. */
export const EXAMPLES = {
  translate: { // by the language that a model reads
    en: ["The goat couldn't carry the basket because it was too thirsty.",
         "The goat couldn't carry the basket because it was too heavy.", "Every evening my sister washes her car.", "The mouse is sitting on the carpet. It is round."],
    de: ["Die Ziege konnte den Korb nicht tragen, weil sie zu durstig war.", "Jeden Abend wäscht meine Schwester ihr Auto."],
    zh: ["山羊搬不动篮子，因为它太渴了。", "我姐姐每天晚上都洗她的车。"],
  },
  chat: ["Hello! Who are you?", "Tell me something about the sea."],
  story: ["Once upon a time", "The ship left the harbour at night, and"],
  fill: ["The goat was too [MASK] to carry the basket.", "Paris is the [MASK] of [MASK]."],
  classify: ["A warm, funny and beautifully acted film.", "Two hours that I will never get back."],
  tag: ["Anna Berg moved from Hamburg to Paris in May .", "The European Commission met in Brussels on Thursday ."],
  answer: [["Who built the lighthouse?", SEA], ["How far can the lamp be seen?", SEA]],
  choose: [["Where does the lighthouse stand?", SEA, "On a cliff\nIn a forest\nOn a ship"]],
};
