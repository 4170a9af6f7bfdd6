// Moves between layers and pairs. The page already shows one layer of every pair without this.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const slider = document.getElementById("layer");
  const shown = document.getElementById("layer-shown");
  const sections = [...document.querySelectorAll(".pair")];
  const links = [...document.querySelectorAll(".list a")];
  const layerNames = slider.dataset.names.split(" ");
  const numColors = Number(slider.dataset.colors);
  const signs = { linked: "●", sure: "●", possible: "●", wrong: "✕" };
  const drawn = new Map();
  let pair = 0;

  const decode = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const weigh = (layer, shade) => layer.low + (shade / 255) * (layer.high - layer.low);

  function colorWords(section, groups) {
    section.querySelectorAll(".sentence").forEach((sentence, side) => {
      [...sentence.children].forEach((word, place) => {
        const group = groups[side][place];
        word.className = group === null
          ? "alone"
          : `word c${group % numColors} s${Math.floor(group / numColors) % 3}`;
      });
    });
  }

  function drawMatrix(section, layer) {
    const rows = [...section.querySelector("tbody").rows];
    const kinds = new Map();
    for (const [kind, cells] of Object.entries(layer.kinds)) {
      for (const [i, j] of cells) kinds.set(`${i} ${j}`, kind);
    }
    const shades = decode(layer.shades);
    const width = rows[0].cells.length - 1;
    rows.forEach((row, i) => {
      for (let j = 0; j < width; j += 1) {
        const cell = row.cells[j + 1];
        const kind = kinds.get(`${i} ${j}`) ?? "";
        cell.className = kind;
        cell.textContent = signs[kind] ?? "";
        cell.style.setProperty("--shade", (shades[i * width + j] / 255).toFixed(2));
      }
    });
    section.querySelector("[data-low]").textContent = layer.low.toFixed(2);
    section.querySelector("[data-high]").textContent = layer.high.toFixed(2);
    section.querySelector("[data-verdict]").textContent = layer.verdict;
  }

  function makeElement(name, className, text) {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    return element;
  }

  function listNeighbors(section, near) {
    for (const list of section.querySelectorAll("[data-near]")) {
      const side = list.dataset.near;
      list.replaceChildren(...near[side].map(([place, similarity, isRight]) => {
        const item = makeElement("li", isRight ? "right" : "wrong", "");
        const [text, direction] = data.texts[side][place];
        const found = makeElement("span", "found", text);
        found.dir = direction;
        item.append(makeElement("span", "similarity", similarity.toFixed(3)), " ", found);
        if (isRight) item.append(" ", makeElement("span", "verdict", "right"));
        return item;
      }));
    }
  }

  function draw() {
    const place = Number(slider.value);
    const note = data.notes[place] ? ` · ${data.notes[place]}` : "";
    shown.textContent = `${layerNames[place]} of ${slider.dataset.depth}${note}`;
    slider.setAttribute("aria-valuetext", `layer ${shown.textContent}`);
    if (drawn.get(pair) === place) return;
    drawn.set(pair, place);
    const layer = data.pairs[pair].layers[place];
    leave(sections[pair]);
    colorWords(sections[pair], layer.groups);
    drawMatrix(sections[pair], layer);
    if (data.pairs[pair].near.length) listNeighbors(sections[pair], data.pairs[pair].near[place]);
  }

  function choose(place) {
    leave(sections[pair]);
    pair = Math.min(Math.max(place, 0), sections.length - 1);
    sections.forEach((section, k) => section.classList.toggle("chosen", k === pair));
    links.forEach((link, k) => {
      if (k === pair) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
    const list = links[pair]?.closest("ol");
    if (list) {
      const item = links[pair].parentElement;
      const top = item.offsetTop - list.offsetTop;
      if (top < list.scrollTop) list.scrollTop = top;
      const bottom = top + item.offsetHeight - list.clientHeight;
      if (bottom > list.scrollTop) list.scrollTop = bottom;
    }
    draw();
  }

  function leave(section) {
    section.querySelectorAll(".at, .lit").forEach((part) => part.classList.remove("at", "lit"));
    section.querySelector("[data-readout]").textContent = "";
  }

  // Under the pointer: the two words, large enough to read, and their weight.
  function point(section, cell) {
    leave(section);
    const row = cell.parentElement;
    const [i, j] = [row.sectionRowIndex, cell.cellIndex - 1];
    const heads = section.querySelector("thead").rows[0].cells;
    const layer = data.pairs[pair].layers[Number(slider.value)];
    const weight = weigh(layer, decode(layer.shades)[i * (heads.length - 1) + j]);
    const sentences = section.querySelectorAll(".sentence");
    const words = [sentences[0].children[i], sentences[1].children[j]];
    [cell, row.cells[0], heads[j + 1]].forEach((part) => part.classList.add("at"));
    words.forEach((word) => word.classList.add("lit"));
    const [source, target] = words.map((word) => {
      const text = document.createElement("bdi");
      text.textContent = word.textContent;
      return text;
    });
    section.querySelector("[data-readout]").replaceChildren(source, " – ", target, ` ${weight.toFixed(2)}`);
  }

  sections.forEach((section) => {
    const body = section.querySelector("tbody");
    body.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("td");
      if (cell) point(section, cell);
    });
    body.addEventListener("pointerleave", () => leave(section));
  });
  slider.addEventListener("input", draw);
  links.forEach((link, place) => link.addEventListener("click", (event) => {
    event.preventDefault();
    history.replaceState(null, "", link.hash);
    choose(place);
  }));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      // Where arrows already mean something, as in the slider or a wide matrix, they keep it.
      const scroller = event.target.closest(".scroll");
      if (event.target === slider || scroller?.scrollWidth > scroller?.clientWidth) return;
      slider.value = Number(slider.value) + (event.key === "ArrowRight" ? 1 : -1);
      draw();
    } else if (event.key === "n" || event.key === "p") {
      choose(pair + (event.key === "n" ? 1 : -1));
    } else return;
    event.preventDefault();
  });
  const find = () => sections.findIndex((section) => `#${section.id}` === location.hash);
  window.addEventListener("hashchange", () => choose(find()));
  // A browser keeps a slider's place when it loads a page again.
  choose(find());
})();
