/* What the page says: of each entry the words in English and in Chinese. */
const TEXTS = {
  lines: ["Lines", "连线"], map: ["Map", "热图"], heads: ["Heads", "各头"], rollout: ["Rollout", "累积"],
  walk: ["Walk", "演算"], lens: ["After layers", "各层之后"], layer: ["Layer", "层"], head: ["Head", "头"], encoder: ["Encoder", "编码器"],
  decoder: ["Decoder", "解码器"], cross: ["Cross", "交叉"], places: ["Attention", "注意力"],
  views: ["View", "视图"], encoderTitle: ["words of the source attend to each other", "源文的词互相关注"],
  decoderTitle: ["each word attends to those before it", "每个词关注它之前的词"],
  crossTitle: ["each output word attends to the source", "输出的每个词关注源文"],
  textTitle: ["words of the text attend to each other", "文中的词互相关注"], query: ["queries", "查询"],
  key: ["keys", "键"], theme: ["Light or dark", "浅色或深色"], other: ["中文", "English"], keys: ["Keys", "按键"],
  says: ["predicts", "预测"], looks: ["attends to", "关注"], seen: ["is attended to by", "被这些词关注："],
  asks: ["query ↓ key →", "查询 ↓ 键 →"],
  hint: [
    "Point at a word, or press J and K; a click keeps it.",
    "把鼠标移到一个词上，或按 J、K 键；单击可固定。",
  ],
  tapHint: [
    "Tap a word to see its weights; tap it again to let go.",
    "轻触一个词即可查看它的权重；再触一次取消。",
  ],
  about: [
    "A layer of attention makes a new vector for each word by mixing the vectors of the words it may see; the weights say how much of each goes in. On the left are the words whose vectors are made (queries), on the right the words they are mixed from (keys): the stronger a line, the larger the weight, and the weights of one query sum to 1. Every layer does this in several heads side by side, and each head has weights of its own. {p} a word to see its weights, go through heads and layers to compare them, and open Walk to follow the arithmetic of one weight.",
    "注意力层为每个词算出一个新向量：把它能看到的各个词的向量按权重混合起来，权重就是每个词所占的份量。左边是要更新的词（查询），右边是被取用的词（键）；线越深，权重越大，同一个查询的权重之和为 1。每一层同时有若干个头各做一遍，每个头都有自己的一套权重。{p}一个词看它的权重，再换头、换层作比较；“演算”一栏逐步列出一个权重是怎样算出来的。",
  ],
  tasks: [{}, {
    translation: "翻译", lm: "语言模型", chat: "对话", pretraining: "预训练", embedding: "文本向量", classify: "分类",
    regress: "回归", tag: "标注", answer: "问答", choose: "选择",
  }],
  sizes: ["layers × heads {s}", "层数 × 头数 {s}"],
  recurrence: [
    "{r} in the place of decoder self-attention, without weights", "解码器用 {r} 代替自注意力，没有权重",
  ],
  layerN: ["Layer {n}", "第 {n} 层"], headN: ["Head {n}", "第 {n} 头"],
  ablated: ["Switched off: {h}. With all heads:", "已关闭：{h}。所有头都在时："],
  placeHead: ["{p}, layer {l}, head {h}", "{p}第 {l} 层第 {h} 头"], switch: ["Switch this head off", "关闭这个头"],
  text: ["Text", "文本"], show: ["Show", "查看"], point: ["Point at", "指向"], tap: ["Tap", "轻触"],
  aboutPair: [
    "Two texts that differ little, read by the same model. What both attend to alike stays blue; weights that moved by 0.1 or more are orange. The list names the heads whose weights moved most, among the words that both texts share; choose one to see it on both sides.",
    "同一个模型读两段只有少许差别的文本。两边相同的权重为蓝色，变化达到 0.1 的权重为橙色。下面列出在两段共有的词上权重变化最大的头；选中一个，两边就同时显示它。",
  ],
  movedHead: ["{p}, layer {l}, head {h}: {q} → {k} {a} → {b}", "{p}第 {l} 层第 {h} 头：{q} → {k} {a} → {b}"],
  of: ["of", "/"], weight: ["weight", "权重"],
  legend: [
    "weight, coloured by its root; the strongest colour is the largest here",
    "权重，按平方根着色；最浓的颜色是此处的最大值",
  ],
  hidden: ["hidden", "被遮住"], chooseHead: ["layer {l}, head {h}", "第 {l} 层第 {h} 头"],
  noRollout: [
    "Rollout follows words through layers of self-attention, which this model has not got, or has shortened.",
    "累积注意力沿自注意力各层追踪词；这个模型没有自注意力，或者它的键被压缩过。",
  ],
  rolloutNote: [
    "How much of each input word is in each place after layer {l}, if heads count alike and half of a place passes by in the residual: R ← (½W + ½I) R (Abnar and Zuidema 2020). In a decoder, rows of target and source together sum to 1.",
    "到第 {l} 层为止，每个位置含有多少各输入词：各头同等计算，残差保留一半，R ← (½W + ½I) R（Abnar 与 Zuidema 2020）。在解码器中，译文与源文两部分每行合计为 1。",
  ],
  noWalk: [
    "The numbers behind these weights would make this page too large; take a shorter text.",
    "列出这些权重背后的数字会使页面过大；请换短一些的文本。",
  ],
  noChoice: [
    "The numbers behind these weights are not shown: this page does not know the choice ",
    "这些权重背后的数字没有给出：本页不认识这个选择：",
  ],
  note: [
    "Weights say what was mixed, not why the model gave its output: other weights can give the same output (Jain and Wallace 2019; Wiegreffe and Pinter 2019).",
    "权重说明混合了什么，不说明模型为什么这样输出：别的权重可以给出同样的输出（Jain 与 Wallace 2019；Wiegreffe 与 Pinter 2019）。",
  ],
  w1: ["Words", "词"],
  w1a: [
    "Choose the query. Everything below is about it, in this layer and head.",
    "选择发出查询的词。以下都是它在这一层、这一头中的数字。",
  ],
  w1b: ["At this position the model reads {r} and predicts {s}.", "模型在此位置读入 {r}，预测 {s}。"],
  w2: ["A vector for each word", "每个词一个向量"], word: ["word", "词"], segment: ["segment", "句段"],
  position: ["position", "位置"], joined: ["joined with its position, by a matrix", "由矩阵与位置合并"],
  norm: ["normalised", "归一化"], sum: ["sum", "和"],
  first: ["{w}: the first {n} of {d} numbers", "{w}：{d} 个数中的前 {n} 个"],
  w2a: [
    "This is what enters layer 1. Layer {l} reads what layer {m} has made of it, which is not shown.",
    "这是进入第 1 层的向量。第 {l} 层读的是第 {m} 层的结果，未列出。",
  ],
  w2b: ["No position is added here.", "这里不加位置。"],
  w2c: [
    "Recurrent or convolutional layers come between this and the attention; they are not shown.",
    "它与注意力之间还有循环层或卷积层，未列出。",
  ],
  w3: ["Query, key and value", "查询、键、值"],
  w3a: [
    "Three matrices of this head make of each word a query, a key and a value; the matrices ({D} × {d}, {D} × {d} and {D} × {v}) are not shown.",
    "这一头的三个矩阵把每个词变成查询、键和值；矩阵（{D} × {d}、{D} × {d} 和 {D} × {v}）未列出。",
  ],
  w3b: [
    "There are no projections: the decoder's state is the query, the source's states are keys and values.",
    "这里没有投影：解码器的状态就是查询，源文的状态就是键和值。",
  ],
  w3r: [
    "Query and key are shown after they were turned by their positions (rotary).",
    "所示查询与键已按位置旋转（rotary）。",
  ],
  w3s: [
    "Keys and values are shown after several words were made one (compress).",
    "所示键与值是几个词合成的（compress）。",
  ],
  w3t: ["Query and key are shown as the score compares them: {f}.", "所示查询与键是打分时比较的样子：{f}。"],
  dim: ["number", "序号"],
  allOf: [
    "Key {k}: all {n} numbers of q and k, the sum of their terms, and all {m} numbers of v",
    "键 {k}：q、k 的全部 {n} 个数，各项之和，以及 v 的全部 {m} 个数",
  ],
  w4: ["Score, scale, mask, weights", "分数、缩放、掩码、权重"], scale: ["× {s}", "× {s}"],
  root: ["÷ √{d}", "÷ √{d}"],
  w4a: [
    "Each key's score, by {f}. √d_k uses the size of one head's keys, here d_k = {d} and √d_k = {r}: the sum of {d} products varies about √{d} times as much as one.",
    "每个键的分数：{f}。√d_k 用的是一个头的键的维数，这里 d_k = {d}，√d_k = {r}：{d} 个乘积之和的起伏约为单个的 √{d} 倍。",
  ],
  w4z: ["Each key's score, by {f}.", "每个键的分数：{f}。"], bias: ["+ position", "+ 位置"], mask: ["mask", "掩码"],
  exp: ["exp(s − max)", "exp(s − max)"], final: ["weight", "权重"], gain: ["× nearness", "× 远近"],
  w4n: ["Weights by {f}.", "权重：{f}。"],
  w4h: ["A hidden key gets −∞, so that its weight is exactly 0.", "被遮住的键得 −∞，权重恰为 0。"],
  w4g: [
    "local_p then multiplies weights by how near a place is to its centre.",
    "local_p 再按离中心的远近乘以权重。",
  ],
  w5: ["Weighted sum", "加权和"],
  w5a: [
    "Each value by its weight; the sum is this head's output for the word ({n} of {d} numbers shown).",
    "每个值乘以它的权重；其和就是这一头为该词算出的输出（列出 {d} 个数中的 {n} 个）。",
  ],
  mixed: ["relative positions add", "相对位置所加"],
  w6: ["All heads, and the output projection", "各头拼接与输出投影"],
  w6a: [
    "The vectors of all {h} heads, end to end ({h} × {d} = {n} numbers), go through one more matrix, Wᴼ. Row by row: what each head adds to the first numbers of the result.",
    "{h} 个头的向量首尾相接（{h} × {d} = {n} 个数），再乘以矩阵 Wᴼ。下面逐头列出它对结果前几个数的贡献。",
  ],
  adds: ["the first {n} numbers of y, head by head", "y 的前 {n} 个数，按头列出"], off: ["off", "已关闭"],
  w6b: ["The decoder goes on with this vector.", "解码器带着这个向量继续。"],
  w7: ["Residual connection and norm", "残差连接与归一化"],
  w7a: [
    "The word's own vector x is added to what came out, and the sum is normalised.",
    "先把这一步的结果与词自己的向量 x 相加，再作归一化。",
  ],
  w7b: [
    "What came out is added to the word's own vector x; the norm stood before, on the way in.",
    "把这一步的结果加到词自己的向量 x 上；归一化在进入这一步之前已经做过。",
  ],
  w7n: [
    "The mean over all features is μ = {m}, the deviation σ = {d}.",
    "全部特征的均值 μ = {m}，标准差 σ = {d}。",
  ],
  w8: ["Feed-forward", "前馈网络"],
  w8a: [
    "Two matrices with a bend between them, for each word by itself: {n} inner numbers, of which {a} are above 0 here.",
    "两个矩阵，中间隔一个激活函数，逐词单独计算：中间层有 {n} 个数，此处有 {a} 个大于 0。",
  ],
  inner: ["inner", "中间层"], goesOn: ["Layer {l} goes on with this vector.", "第 {l} 层接着用这个向量。"],
  goesUp: ["This is the last layer: its vector goes to the top.", "这是最后一层，它的向量送往输出端。"],
  goesAcross: [
    "The same layer's attention to the source (Cross) goes on with this vector.",
    "同一层对源文的注意力（交叉）接着用这个向量。",
  ],
  w10: ["Scores of words", "各词的得分"],
  w10a: [
    "The vector is compared with the output vector of each of the {v} words; softmax makes probabilities of the scores. Here stands {w}. A low temperature T sharpens, a high one flattens; top-k keeps the k best.",
    "用这个向量与 {v} 个词的输出向量分别作比较，再用 softmax 把得分变成概率。这里写的是{w}。温度 T 低则分布尖锐，高则平缓；top-k 只保留得分最高的 k 个词。",
  ],
  route: ["Guided route", "导览"],
  routeStart: ["Guided route: from {p} to {r} in {n} steps", "导览：从{p}到{r}，共 {n} 步"],
  routeEncoder: ["encoder layer {l}, head {h}", "编码器第 {l} 层第 {h} 头"],
  routeCross: ["cross-attention layer {l}, head {h}", "交叉注意力第 {l} 层第 {h} 头"],
  routeBack: ["Back", "上一步"], routeNext: ["Next", "下一步"], routeEnd: ["End", "结束"], space: [" ", ""],
  route_given: ["as you said", "由你指定"], route_known: ["the embedded corpus says so", "内置语料中已标明"],
  route_guessed: ["guessed; --referent corrects it", "猜测所得，可用 --referent 更正"],
  route_question: ["Here {p} refers to {r} ({h}).", "这里的{p}指{r}（{h}）。"],
  route_choice: ["To write {t}, the model has to find that out.", "模型要弄清这一点，才能写出{t}。"],
  route_begin: [
    "We begin at the bottom: in {x}, {a} attends most to {k}, with a weight of {m}.",
    "从最底层看起：在{x}，{a}最关注{k}，权重 {m}。",
  ],
  route_usual: [
    "No head of the encoder has a larger weight from {p} to {r} than {x}: {w}. Pictures like this one are often shown as proof that a model understands the pronoun.",
    "编码器的所有头中，从{p}到{r}的权重以{x}为最大：{w}。这样的图常被当作模型理解代词的证据。",
  ],
  route_usualNot: [
    "In the encoder {p} hardly attends to {r}: the largest weight of all its heads is {w}, in {x}. In other sentences such a weight is large, and is then often shown as proof that a model understands the pronoun.",
    "在编码器里，{p}几乎不关注{r}：所有头中最大的权重是 {w}，在{x}。换一个句子，这个权重可能很大，常被当作模型理解代词的证据。",
  ],
  route_test: [
    "Does it follow the meaning? We let the model read {c} pairs of sentences in which one word decides what the pronoun refers to, such as: {e}",
    "它随意思而变吗？让模型读 {c} 对句子，每对只差一个词，代词所指却因此不同，例如：{e}",
  ],
  route_testNo: [
    "Whether a noun is what the pronoun refers to changes this head's weight on it by {v} on average: the head hardly follows the meaning.",
    "一个名词是不是所指，这个头给它的权重平均只相差 {v}：这个头几乎不随意思而变。",
  ],
  route_testYes: [
    "Whether a noun is what the pronoun refers to changes this head's weight on it by {v} on average: the head follows the meaning.",
    "一个名词是不是所指，这个头给它的权重平均相差 {v}：这个头随意思而变。",
  ],
  route_single: [
    "One text cannot show whether this head follows the meaning or only where words stand. To see that, look at two texts that differ in one word.",
    "只看一段文本，分不清这个头随的是意思，还是词的位置。要分清，就比较只差一个词的两段文本。",
  ],
  route_follows: ["In {x}, {a} attends most to {r}, with a weight of {w}.", "在{x}，{a}最关注{r}，权重 {w}。"],
  route_partly: [
    "In {x}, {a} has a weight of {w} on {r}, and the largest, {m}, on {k}.",
    "在{x}，{a}对{r}的权重是 {w}，最大的权重 {m} 落在{k}上。",
  ],
  route_movesMost: [
    "This is the place: in the same pairs no other head that sees the source follows the meaning so much. The right noun has {v} more here, and more than the other noun in {g} of the sentences.",
    "就是这里：在同样的句对中，看得到源文的其他头都不这样随意思而变。正确的名词在这里平均多得 {v}，并且在 {g} 的句子中超过另一个名词。",
  ],
  route_movesLittle: [
    "In the same pairs this head follows the meaning most, but little: the right noun has {v} more here. This model's attention does not show what the pronoun refers to.",
    "在同样的句对中，这个头随意思变化最大，却也很小：正确的名词只多得 {v}。从这个模型的注意力看不出代词指什么。",
  ],
  route_mostHere: [
    "Of all heads of the cross-attention this one has the largest weight there. One text does not show whether it follows the meaning.",
    "在交叉注意力的所有头中，它在此处的权重最大。只看一段文本，还不知道它是否随意思而变。",
  ],
  route_off: [
    "Without this head the probability of {t} goes from {b} to {q}, that of {o} from {y} to {z}.",
    "关闭这个头，{t}的概率由 {b} 变为 {q}，{o}的由 {y} 变为 {z}。",
  ],
  route_offMuch: ["The choice depends on this head.", "选哪个词取决于这个头。"],
  route_offSome: ["The choice depends on this head in part; others help.", "选哪个词部分取决于这个头，别的头也起作用。"],
  route_offNone: [
    "So this head alone does not decide: others carry the same. A weight shows what is mixed, not what it is needed for.",
    "可见这个头单独并不起决定作用，别的头也带着同样的信息。权重说明混合了什么，不说明非它不可。",
  ],
  save: ["Save this view", "保存此视图"],
  lensStart: ["words", "词向量"], lensAttention: ["attention", "注意力"], lensInner: ["feed-forward", "前馈"],
  lensHint: ["{p} a token to see the five likeliest there, and the last answer's probability.", "{p}一个词元，可看到那里最可能的五个词元，以及最终答案的概率。"],
  lensNote: [
    "What the model would say if what follows were left out: the state after each sub-layer, scored by the model's own final norm and output projection. The stronger the colour, the more probable; underlined is the last answer, from where it stays the likeliest. An early state need not speak the last layer's language.",
    "如果去掉后面的部分，模型会输出什么：取每个子层之后的状态，用模型自己的最终归一化和输出投影打分。颜色越浓，概率越大；带下划线的是最终答案，从这里起它一直是最可能的。前面各层的状态不一定用最后一层的“语言”。",
  ],
  temperature: ["Temperature", "温度"], k: ["Top-k", "top-k"], all: ["all", "全部"], score: ["score", "得分"],
  probability: ["probability", "概率"], others: ["all others", "其余各词"],
};
const KEYS = [ // keys, and what they do
  ["← →", "head before, after", "前一头、后一头"],
  ["↑ ↓", "layer below, above", "下一层、上一层"],
  ["J K", "word after, before", "后一词、前一词"],
  ["N B", "key after, before (walk)", "后一键、前一键（演算）"],
  ["L M H R W", "lines, map, heads, rollout, walk", "连线、热图、各头、累积、演算"],
  ["A", "after layers, where the page has it", "各层之后（页面有时）"],
  ["E D C", "encoder, decoder, cross", "编码器、解码器、交叉"],
  [". ,", "guided route: on, back", "导览：下一步、上一步"],
  ["T", "light or dark", "浅色或深色"],
  ["Z", "中文", "English"],
  ["Esc", "let go of a word", "放开选中的词"],
];
const WORDS = Object.fromEntries(["en", "zh"].map((language, n) => [language, {
  ...Object.fromEntries(Object.entries(TEXTS).map(([name, texts]) => [name, texts[n]])),
  help: KEYS.map(([keys, ...what]) => [keys, what[n]]),
}]));
