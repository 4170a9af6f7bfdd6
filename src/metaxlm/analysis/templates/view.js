// The page of `metaxlm view`. All scores and losses are here; sentences and tokens are asked for.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const MEAN = "mean", LAST = "last", BEST = "best", ALL = "all tasks", META = "meta-pretraining";
  const SHORT = { neighbors: "tatoeba", alignments: "alignment" };
  const CONTROLS = {
    scores: ["variants", "task", "step", "layer"],
    loss: ["variants", "curve", "step"],
    layers: ["variants", "task", "language", "step", "layer"],
    neighbors: ["variant", "step", "language", "layer", "direction", "sentence"],
    alignments: ["variant", "step", "language", "layer", "sentence"],
    ledger: ["variant", "token"],
  };
  const SELECTS = ["variant", "task", "curve", "language", "step", "layer", "direction", "sentence"];
  let run, rows, state = {}, asked = 0, pending = 0;
  const pairLists = new Map(), lists = new Map();

  // Elements: text is always set as text, never as markup.
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "onclick") element.addEventListener("click", value);
      else if (value !== null && value !== false) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }
  const draw = (name, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const show = (...parts) => $("main").replaceChildren(...parts.filter(Boolean));
  const text = (value, name = "span", attributes = {}) => make(name, { dir: "auto", ...attributes }, value);
  const label = (variant) => run.variants[variant].label;
  const language = (code) => run.languages[code] ?? code;
  const percent = (value) => (value === undefined ? "–" : (100 * value).toFixed(1));
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const unique = (values) => [...new Set(values)];
  const chosen = () => Object.keys(run.variants).filter((name) => state.variants.includes(name));

  async function ask(question, query) {
    $("main").setAttribute("aria-busy", String((pending += 1) > 0));
    try {
      const answer = await fetch(`ask/${question}?${new URLSearchParams(query)}`);
      const value = await answer.json();
      if (!answer.ok) throw new Error(value.error);
      return value;
    } finally { $("main").setAttribute("aria-busy", String((pending -= 1) > 0)); }
  }

  // Scores.
  const lastStep = (variant) => run.lastSteps[variant];
  const pick = (task, variant, step) => rows.get(`${task} ${variant} ${step === LAST ? lastStep(variant) : step}`) ?? [];
  const better = (task, a, b) => (run.tasks[task].lower ? a < b : a > b);

  function bestLayer(task, found) {
    const byLayer = Map.groupBy(found, (row) => row.layer);
    const means = [...byLayer].map(([layer, some]) => [layer, average(some.map((row) => row.value))]);
    return means.sort((a, b) => a[0] - b[0]).reduce((a, b) => (better(task, b[1], a[1]) ? b : a))[0];
  }

  // The table of one task: a line per language or pair of languages.
  function tabulate(task) {
    const variants = chosen(), lines = new Map(), layers = {};
    for (const variant of variants) {
      let found = pick(task, variant, state.step);
      if (run.tasks[task].layered && found.length) {
        layers[variant] = state.layer === BEST || state.task === ALL ? bestLayer(task, found) : Number(state.layer);
        found = found.filter((row) => row.layer === layers[variant]);
      }
      for (const row of found) {
        const crossed = row.source !== "en" ? `${language(row.source)} → ` : "";
        const key = `${crossed}${language(row.language)}${row.scenario === "supervised" ? " (supervised)" : ""}`;
        if (!lines.has(key)) lines.set(key, { name: key, scenario: row.scenario, cells: {} });
        lines.get(key).cells[variant] = row;
      }
    }
    return { variants, layers, lines: [...lines.values()] };
  }

  // Means over the lines that all variants with a score have, one for each scenario.
  function meanLines(name, table) {
    return [...Map.groupBy(table.lines, (line) => line.scenario)].map(([scenario, lines]) => {
      const having = table.variants.filter((v) => lines.some((line) => line.cells[v])), cells = {};
      const shared = lines.filter((line) => having.every((v) => line.cells[v]));
      for (const v of shared.length ? having : []) cells[v] = { value: average(shared.map((line) => line.cells[v].value)) };
      return { name: `${name}${scenario === "supervised" ? " (supervised)" : ""}`, cells, count: shared.length };
    });
  }

  const seeds = (facts) => ((counts) => (counts.every((k) => k === 1) ? "1 seed" : `mean of ${counts.join(" or ")} seeds`))(unique(facts.map((row) => row.seeds)).sort());

  function drawScores() {
    const isAll = state.task === ALL;
    const tables = (isAll ? Object.keys(run.tasks) : [state.task]).map((task) => [task, tabulate(task)]);
    let lines, note, feet = [], layers = {};
    if (isAll) {
      lines = tables.flatMap(([task, table]) => meanLines(run.tasks[task].title, table).map((line) => ({ ...line, task }))).filter((line) => line.count);
      note = "Means over the languages that all chosen variants with a score share, in the best layer where layers are measured; × 100.";
    } else {
      const [[task, table]] = tables;
      lines = table.lines.map((line) => ({ ...line, task }));
      layers = table.layers;
      feet = meanLines("Mean of shared languages", table).filter((line) => line.count > 1).map((line) => ({ ...line, task }));
      const facts = lines.flatMap((line) => Object.values(line.cells));
      note = `${run.tasks[task].metric}${run.tasks[task].lower ? " (lower is better)" : ""} × 100; split ${unique(facts.map((row) => row.split)).join(", ")}; ${seeds(facts)}.`;
    }
    if (!lines.length) return show(make("p", {}, "No scores at this step: choose another step, task or variant."));
    const [sort, order] = state.sort.split(" ");
    if (sort) {
      const value = (line) => (sort === "name" ? line.name : line.cells[sort]?.value ?? -1);
      lines.sort((a, b) => (value(a) < value(b) ? -1 : 1) * (order === "up" ? 1 : -1));
    }
    const head = (key, title, extra = "") => {
      const active = sort === key, next = active && order === "down" ? "up" : active ? "down" : key === "name" ? "up" : "down";
      return make("th", { scope: "col", "aria-sort": active ? (order === "up" ? "ascending" : "descending") : "none" },
        make("button", { type: "button", "data-sort": key, onclick: () => change({ sort: `${key} ${next}` }, `[data-sort="${CSS.escape(key)}"]`) }, title), extra);
    };
    const variants = chosen();
    const write = (line, isFoot) => {
      const values = variants.map((v) => line.cells[v]?.value).filter((value) => value !== undefined);
      const top = values.length > 1 ? values.reduce((a, b) => (better(line.task, b, a) ? b : a)) : null;
      return make("tr", { class: isFoot ? "reference" : null }, make("th", { scope: "row" }, line.name), ...variants.map((v) => {
        const row = line.cells[v];
        return make("td", { title: row?.seeds ? `${seeds([row])}, ${row.split}` : null }, row && row.value === top ? make("strong", {}, percent(row.value)) : percent(row?.value));
      }));
    };
    const heads = variants.map((v) => head(v, label(v), v in layers ? make("small", {}, `layer ${layers[v]}`) : ""));
    const table = make("table", {}, make("thead", {}, make("tr", {}, head("name", isAll ? "Task" : "Language"), ...heads)),
      make("tbody", {}, ...lines.map((line) => write(line, false)), ...feet.map((line) => write(line, true))));
    show(scroller(table, "Scores"), make("p", { class: "note" }, note));
  }

  const scroller = (part, name) => make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": name }, part);

  // Lines over steps or layers, with a table of their values at the chosen place.
  const DASHES = { "-": "", "--": "7 4", "-.": "8 3 2 3", ":": "2 3" };
  function drawChart(series, { x, y, place, decimals, title, choose = (points) => points.at(-1) }) {
    const used = series.filter((one) => one.points.length);
    if (!used.length) return show(make("p", {}, "Nothing was measured for these choices."));
    const width = Math.min(900, $("main").clientWidth), height = width < 600 ? 320 : 420, left = 40, bottom = height - 40, top = 14;
    const xs = used.flatMap((one) => one.points.map((p) => p[0])), ys = used.flatMap((one) => one.points.map((p) => p[1]));
    const flat = Math.min(...ys) === Math.max(...ys) ? 1 : 0;
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys) - flat, Math.max(...ys) + flat];
    const toX = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - 10);
    const toY = (value) => bottom - ((value - y0) / (y1 - y0 || 1)) * (bottom - top);
    const ticks = (low, high) => {
      const raw = (high - low || 1) / (width < 600 ? 4 : 7), power = 10 ** Math.floor(Math.log10(raw));
      const size = [1, 2, 5, 10].find((k) => k * power >= raw) * power, found = [];
      for (let value = Math.ceil(low / size) * size; value <= high + 1e-9; value += size) found.push(Number(value.toFixed(6)));
      return found;
    };
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}; the table below has the numbers` });
    for (const tick of ticks(y0, y1)) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - 10, y1: toY(tick), y2: toY(tick) }),
        draw("text", { x: left - 6, y: toY(tick) + 4, "text-anchor": "end" }, String(tick)));
    }
    for (const tick of ticks(x0, x1).filter(Number.isInteger)) svg.append(draw("text", { x: toX(tick), y: bottom + 20, "text-anchor": "middle" }, tick.toLocaleString("en")));
    svg.append(draw("text", { x: width - 10, y: bottom + 38, "text-anchor": "end" }, x));
    if (place !== null) svg.append(draw("line", { class: "mark", x1: toX(place), x2: toX(place), y1: top, y2: bottom }));
    for (const one of used) {
      const path = one.points.map((p, k) => `${k ? "L" : "M"}${toX(p[0]).toFixed(1)} ${toY(p[1]).toFixed(1)}`).join("");
      const group = draw("g", { class: one.look }, draw("path", { d: path, "stroke-dasharray": DASHES[one.dash] ?? "" }), draw("title", {}, one.name));
      if (one.points.length < 30) for (const p of one.points) group.append(draw("circle", { cx: toX(p[0]), cy: toY(p[1]), r: 3 }));
      svg.append(group);
    }
    const sample = (one) => draw("svg", { class: `sample-line ${one.look}`, viewBox: "0 0 26 8", "aria-hidden": "true" }, draw("path", { d: "M0 4H26", "stroke-dasharray": DASHES[one.dash] ?? "" }));
    const at = (one) => (place === null ? choose(one.points) : one.points.findLast((p) => p[0] <= place));
    const body = used.map((one) => {
      const point = at(one);
      return make("tr", {}, make("th", { scope: "row" }, sample(one), one.name),
        make("td", {}, point ? point[0].toLocaleString("en") : "–"), make("td", {}, point ? point[1].toFixed(decimals) : "–"));
    });
    show(make("h2", {}, title), make("figure", { class: "chart" }, svg), scroller(make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Variant"), make("th", { scope: "col" }, x), make("th", { scope: "col" }, y))), make("tbody", {}, ...body)), title));
  }
  const style = (variant) => ({ name: label(variant), look: run.variants[variant].look, dash: run.variants[variant].dash });

  function drawLoss() {
    const series = chosen().filter((v) => run.losses[v]).map((v) => {
      const { training, held_out: held } = run.losses[v];
      if (state.curve === "training") return { ...style(v), points: training };
      if (state.curve !== MEAN) return { ...style(v), points: held[state.curve] ?? [] };
      const [first, ...others] = Object.values(held);
      return { ...style(v), points: (first ?? []).map(([step, loss], k) => [step, average([loss, ...others.map((one) => one[k][1])])]) };
    });
    let title = state.curve === "training" ? "Training loss" : `Held-out loss, ${state.curve === MEAN ? "mean over languages" : language(state.curve)}`;
    if (state.curve === META) {
      title = "Training loss of the meta-pretraining";
      series.splice(0, Infinity, { name: "Meta-pretraining", look: "v1", dash: "-", points: run.losses[""].training });
    }
    drawChart(series, { x: "step", y: "loss", place: state.step === LAST ? null : Number(state.step), decimals: 3, title });
  }

  function drawLayers() {
    const { title, metric } = run.tasks[state.task];
    const series = chosen().map((v) => {
      const found = pick(state.task, v, state.step).filter((row) => state.language === MEAN || row.language === state.language);
      const byLayer = [...Map.groupBy(found, (row) => row.layer)].sort((a, b) => a[0] - b[0]);
      return { ...style(v), points: byLayer.map(([layer, some]) => [layer, 100 * average(some.map((row) => row.value))]) };
    });
    const where = state.language === MEAN ? "mean over languages" : language(state.language);
    drawChart(series, { x: "layer", y: `${metric} × 100`, place: state.layer === BEST ? null : Number(state.layer), decimals: 1, title: `${title} by layer, ${where}`,
      choose: (points) => points.reduce((a, b) => (better(state.task, b[1], a[1]) ? b : a)) });
  }

  // Sentences and tokens.
  const notice = (view) => run.missing[view] && make("p", { class: "missing" }, ...code(run.missing[view]));
  const code = (sentence) => sentence.split("`").map((part, k) => (k % 2 ? make("code", {}, part) : part));
  function measured() {
    const task = SHORT[state.view];
    if (!run.tasks[task]) return null;
    const found = pick(task, state.variant, state.step).filter((row) => row.language === state.language && (state.layer === BEST || row.layer === Number(state.layer)));
    if (!found.length) return make("p", { class: "note" }, `No score of ${label(state.variant)} in ${language(state.language)} for these choices.`);
    const row = found.reduce((a, b) => (better(task, b.value, a.value) ? b : a));
    return make("p", { class: "note" }, `Measured over all sentences, ${language(state.language)}, layer ${row.layer}: ${run.tasks[task].metric} ${percent(row.value)}.`);
  }
  const isLive = () => !run.missing[state.view] && run.models[state.variant] && run.pairs[SHORT[state.view]].includes(state.language);
  function layerNumber() {
    if (state.layer !== BEST) return state.layer;
    const task = SHORT[state.view], found = pick(task, state.variant, state.step).filter((row) => row.language === state.language);
    return String(found.length ? bestLayer(task, found) : run.depths[state.variant] ?? 0);
  }
  const examples = () => (run.examples[state.variant]?.[SHORT[state.view]] ?? []).filter((one) => one.language === state.language);

  async function askSentence(question, more) {
    const number = ++asked, { variant, step, sentence } = state;
    const timer = setTimeout(() => show(make("p", {}, "Computing … the first sentence of a model and language takes longest.")), 150);
    try {
      const wanted = { variant, step: step === LAST ? run.models[variant].at(-1) : step, language: state.language, layer: layerNumber(), sentence, ...more };
      const answer = await ask(question, wanted);
      return number === asked ? answer : null;
    } finally { clearTimeout(timer); }
  }

  const neighborItem = (one) => make("li", { class: one.right ? "right" : "wrong" }, make("span", { class: "similarity" }, one.similarity.toFixed(3)), text(one.text), make("span", { class: "verdict" }, one.right ? "right" : "wrong"));

  async function drawNeighbors() {
    if (!isLive()) {
      const stored = examples().map((one) => make("div", { class: "query near" }, text(one.query, "p"), text(`Expected: ${one.expected}`, "p", { class: "expected" }),
        make("ol", {}, neighborItem({ text: one.found, similarity: one.similarity, right: one.right }))));
      const head = stored.length ? make("h2", {}, "Examples that the evaluation stored, at the best layer") : null;
      return show(notice("neighbors"), measured(), head, ...stored);
    }
    const found = await askSentence("neighbors", { direction: state.direction });
    if (!found) return undefined;
    return show(make("h2", {}, text(found.query)), make("p", { class: "note" }, "Translation: ", text(found.expected), ` Rank ${found.rank} of ${found.num_searched}, layer ${layerNumber()}.`),
      make("div", { class: "near" }, make("ol", {}, ...found.found.map(neighborItem))), measured());
  }

  const SIGNS = { sure: "●", possible: "●", wrong: "✕" };
  function matrix(pair) {
    const kinds = new Map();
    for (const [kind, links] of Object.entries(pair.kinds)) for (const [i, j] of links) kinds.set(`${i} ${j}`, kind);
    const heads = pair.target_words.map((word) => make("th", { scope: "col", class: [...word].length > 1 ? "turned" : "level" }, text(word)));
    const body = pair.source_words.map((word, i) => make("tr", {}, make("th", { scope: "row" }, text(word, "bdi")), ...pair.target_words.map((other, j) => {
      const kind = kinds.get(`${i} ${j}`), weight = pair.weights?.[i][j];
      const cell = make("td", { class: kind ?? null, title: `${word} – ${other}${kind ? `: ${kind}` : ""}${weight === undefined ? "" : `, ${weight.toFixed(2)}`}` }, SIGNS[kind] ?? "");
      cell.style.setProperty("--shade", weight ?? 0);
      return cell;
    })));
    const table = make("table", { class: "matrix" }, make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...body));
    return make("div", {}, text(pair.source_words.join(" "), "p", { class: "sentence" }), text(pair.target_words.join(" "), "p", { class: "sentence" }),
      make("p", { class: "verdict-line" }, pair.verdict), scroller(table, "Word links"));
  }
  const KINDS = { sure: "right", possible: "right (possible link)", wrong: "wrong", missed: "missed" };
  const legend = () => make("ul", { class: "legend" }, ...Object.entries(KINDS).map(([kind, name]) => make("li", {}, make("span", { class: `sample ${kind}`, "aria-hidden": "true" }, SIGNS[kind] ?? ""), name)));

  async function drawAlignments() {
    if (!isLive()) {
      const stored = examples();
      const head = stored.length ? make("h2", {}, `Examples that the evaluation stored, layer ${stored[0].layer}`) : null;
      return show(notice("alignments"), measured(), head, ...stored.map(matrix), stored.length ? legend() : null);
    }
    const pair = await askSentence("alignment", {});
    return pair && show(matrix(pair), legend(), measured());
  }

  async function drawLedger() {
    const start = run.variants[state.variant].start;
    const intro = start ? make("p", { class: "note" }, `${label(state.variant)} ${start}`) : null;
    if (!run.ledgers.includes(state.variant)) return show(intro, notice("ledger"), ...coverage());
    const number = ++asked;
    const { found, similar, size } = await ask("ledger", { variant: state.variant, token: state.token });
    if (number !== asked) return undefined;
    if (!state.token) return show(intro, make("p", {}, `Type one of ${size.toLocaleString("en")} tokens, or its beginning.`), ...coverage());
    const stories = found.map((one) => make("section", { class: "story" }, make("h2", {}, text(one.token), ` (row ${one.row.toLocaleString("en")})`), text(one.description, "p", { class: "note" }),
      make("ol", {}, ...one.steps.map(([rule, result]) => make("li", {}, make("code", {}, rule), " ", text(result)))), make("p", {}, "Starts from ", text(one.outcome), "."),
      one.sources.length ? scroller(make("table", {}, make("thead", {}, make("tr", {}, ...["Source token", "Row", "Weight"].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...one.sources.map(([token, row, weight]) => make("tr", {}, text(token, "th", { scope: "row" }), make("td", {}, row.toLocaleString("en")), make("td", {}, weight.toFixed(4)))))), "Sources") : ""));
    const others = similar.map(([row, token, rule]) => make("li", {}, make("button", { type: "button", onclick: () => { $("token").value = `#${row}`; change({ token: `#${row}` }); } }, text(token), " ", make("small", {}, rule))));
    return show(intro, ...stories, stories.length ? null : make("p", {}, "No such token."), others.length ? make("h3", {}, "Tokens that begin like it") : null, make("ul", { class: "tokens" }, ...others));
  }

  function coverage() {
    const found = run.coverage[state.variant];
    if (!found) return [];
    const line = (name, ...cells) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)));
    const write = (title, heads, lines) => lines.length ? make("figure", { class: "table" }, scroller(make("table", {}, make("caption", {}, title),
      make("thead", {}, make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, ...lines)), title)) : "";
    const rules = Object.entries(found.by_rule ?? {}).filter(([, count]) => count);
    const shares = Object.entries(found.by_language ?? {}).sort((a, b) => b[1].matched - a[1].matched);
    return [make("div", { class: "columns" },
      write("Tokens by rule", ["Rule", "Tokens", "%"], rules.map(([rule, count]) => line(rule, count.toLocaleString("en"), percent(count / found.rows)))),
      write("Running text with a match", ["Language", "%"], shares.map(([name, one]) => line(language(name), percent(one.matched)))))];
  }

  // Choices.
  const DRAW = { scores: drawScores, loss: drawLoss, layers: drawLayers, neighbors: drawNeighbors, alignments: drawAlignments, ledger: drawLedger };
  const numbers = (values) => unique(values).sort((a, b) => a - b).map((value) => [String(value), value.toLocaleString("en")]);

  const names = (codes) => unique(codes).map((one) => [one, language(one)]).sort((a, b) => (a[1] < b[1] ? -1 : 1));
  const titles = (tasks) => tasks.map(([name, one]) => [name, one.title]);
  const measuredAt = () => run.measured[SHORT[state.view] ?? state.task] ?? { steps: [], layers: [], languages: [] };
  const OPTIONS = {
    variant: () => Object.keys(run.variants).map((name) => [name, label(name)]),
    task: () => (state.view === "layers" ? titles(Object.entries(run.tasks).filter(([, one]) => one.layered)) : [[ALL, "All tasks"], ...titles(Object.entries(run.tasks))]),
    curve: () => [["training", "Training"], ...(run.heldOut.length ? [[MEAN, "Held-out, mean"]] : []), ...run.heldOut.map(([one, name]) => [one, `Held-out, ${name}`]), ...(run.losses[""] ? [[META, "Meta-pretraining"]] : [])],
    language: () => (state.view === "layers" ? [[MEAN, "Mean"], ...names(measuredAt().languages)] : names([...measuredAt().languages, ...(run.pairs[SHORT[state.view]] ?? [])])),
    step: () => [[LAST, "Last"], ...(state.view === "loss" ? run.lossSteps : SHORT[state.view] && run.models[state.variant] ? numbers(run.models[state.variant]) : measuredAt().steps)],
    layer: () => (measuredAt().layers.length ? [[BEST, "Best"], ...measuredAt().layers] : []),
    direction: () => [["to_source", "into English"], ["from_source", "from English"]],
    sentence: () => pairLists.get(`${SHORT[state.view]} ${state.language}`) ?? [],
  };

  function fill(id, list) {
    const select = $(id), key = list.join();
    if (lists.get(id) !== key) {
      lists.set(id, key);
      select.replaceChildren(...list.map(([value, name]) => make("option", { value }, name)));
    }
    if (list.length && !list.some(([value]) => value === state[id])) state[id] = list[0][0];
    select.value = state[id];
    return list.length > 1;
  }

  function update() {
    for (const button of $("views").children) {
      if (button.dataset.view === state.view) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
    }
    const task = SHORT[state.view], shown = CONTROLS[state.view];
    const useful = {};
    for (const id of SELECTS) if (shown.includes(id)) useful[id] = fill(id, OPTIONS[id]());
    for (const part of document.querySelectorAll("[data-control]")) {
      const id = part.dataset.control;
      part.hidden = !shown.includes(id) || useful[id] === false || (id === "direction" && !isLive()) || (id === "token" && !run.ledgers.includes(state.variant));
    }
    if (task && isLive() && !pairLists.has(`${task} ${state.language}`)) {
      const place = `${task} ${state.language}`;
      pairLists.set(place, []);
      ask("pairs", { task, language: state.language }).then((list) => { pairLists.set(place, list.map(([one], k) => [String(k), `${k + 1}. ${one}`])); update(); }, fail);
      return;
    }
    for (const box of $("variants").querySelectorAll("input")) box.checked = state.variants.includes(box.value);
    if ($("token").value !== state.token) $("token").value = state.token;
    const kept = ["view", ...shown].map((id) => [id, id === "variants" ? state.variants.join(",") : state[id]]);
    if (state.view === "scores") kept.push(["sort", state.sort]);
    history.replaceState(null, "", `#${new URLSearchParams(kept.filter(([, value]) => value))}`);
    if (!task) asked += 1;
    Promise.resolve(DRAW[state.view]()).catch(fail);
  }
  const fail = (error) => show(make("p", { class: "missing", role: "alert" }, error.message));

  function change(values, focus) {
    Object.assign(state, values);
    update();
    if (focus) document.querySelector(focus)?.focus();
  }

  function readHash() {
    const query = new URLSearchParams(location.hash.slice(1)), all = Object.keys(run.variants);
    const given = query.get("variants")?.split(",").filter((name) => all.includes(name));
    const start = { view: "scores", task: ALL, step: LAST, layer: BEST, language: "", variant: all.at(-1), curve: "training", direction: "to_source", sentence: "0", token: "", sort: "" };
    state = { ...start, ...Object.fromEntries([...query].filter(([key]) => key in start)), variants: given ?? all };
    if (!(state.view in DRAW)) state.view = "scores";
    if (!all.includes(state.variant)) state.variant = all.at(-1);
  }

  function open(found) {
    run = found;
    const columns = Object.keys(run.scores), all = run.scores.value.map((_, k) => Object.fromEntries(columns.map((name) => [name, run.scores[name][k]])));
    rows = Map.groupBy(all, (row) => `${row.task} ${row.variant} ${row.step}`);
    const measure = (some) => ({ steps: numbers(some.map((row) => row.step).filter((step) => step >= 0)), layers: numbers(some.map((row) => row.layer).filter((layer) => layer >= 0)), languages: unique(some.map((row) => row.language)) });
    run.measured = Object.fromEntries([...Map.groupBy(all, (row) => row.task)].map(([task, some]) => [task, measure(some)]));
    run.measured[ALL] = { ...measure(all), layers: [] };
    run.lastSteps = {};
    run.depths = {};
    for (const row of all) {
      run.lastSteps[row.variant] = Math.max(run.lastSteps[row.variant] ?? -1, row.step);
      run.depths[row.variant] = Math.max(run.depths[row.variant] ?? 0, row.layer);
    }
    run.heldOut = names(Object.values(run.losses).flatMap((one) => Object.keys(one.held_out)));
    run.lossSteps = numbers(Object.entries(run.losses).filter(([name]) => name).flatMap(([, one]) => one.training.map(([step]) => step)));
    document.title = `${run.name}: metaxlm view`;
    $("name").textContent = run.name;
    $("views").replaceChildren(...Object.keys(DRAW).map((view) => make("button", { type: "button", "data-view": view, onclick: () => change({ view }) }, view[0].toUpperCase() + view.slice(1))));
    $("variants").replaceChildren(...Object.keys(run.variants).map((name) => make("label", { class: run.variants[name].look }, make("input", { type: "checkbox", value: name }), label(name))));
    $("variants").addEventListener("change", () => change({ variants: [...$("variants").querySelectorAll("input:checked")].map((box) => box.value) }));
    for (const id of SELECTS) $(id).addEventListener("change", () => change({ [id]: $(id).value, ...(id === "language" ? { sentence: "0" } : {}) }));
    $("token").addEventListener("input", () => change({ token: $("token").value.trim() }));
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.id === "token") return;
      event.preventDefault();
      change({ view: "ledger", variant: run.ledgers.includes(state.variant) ? state.variant : run.ledgers.at(-1) ?? state.variant });
      $("token").focus();
    });
    window.addEventListener("resize", () => { if (state.view === "loss" || state.view === "layers") update(); });
    window.addEventListener("hashchange", () => { readHash(); update(); });
    readHash();
    update();
  }

  ask("run", {}).then(open).catch(fail);
})();
