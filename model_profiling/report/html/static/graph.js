// The model as a graph, coloured by what each box takes or by SME2; a chosen box tells all that is known of it.
const [BOX_WIDE, BOX_HIGH, ROW_HIGH] = [196, 42, 70];
// For each kind, the name of its colour and what a box says.
const SME2 = [["used", "SME2"], ["in-part", "SME2 in part"], ["not-used", "no SME2"], ["not-tested", "not tested"], ["no-matrix", ""]];
const ZOOMS = [1, 0.75, 0.5, 0.25];
const heatOf = (part) => `color-mix(in srgb, var(--heat) ${Math.round(100 * part)}%, var(--paper))`;
const shortened = (text, letters, end) => (text.length <= letters ? text : end ? `…${text.slice(1 - letters)}` : `${text.slice(0, letters - 1)}…`);

class GraphExplorer {
  constructor(place) {
    this.data = dataOf(place);
    const { views, timed, texts, unit } = this.data;
    [this.view, this.bySme2, this.zoom] = [views[0], !timed, 1];
    this.boxes = this.data.boxes.map(([label, where, module, row, x, kind, facts], at) => ({
      at, row, x, kind, label: texts[label], where: texts[where], module: texts[module], above: [], below: [], lines: [],
      facts: facts.flatMap((name, each) => (each % 2 ? [] : [[texts[name], texts[facts[each + 1]]]])),
    }));
    for (const [from, targets] of this.data.lines) {
      for (const to of targets) {
        this.boxes[from].below.push(to);
        this.boxes[to].above.push(from);
      }
    }
    this.legend = make("div");
    this.details = make("div", { class: "box-details" });
    this.note = make("p", { class: "note" });
    this.picture = draw("svg", { role: "group", "aria-label": "Graph of the model; arrow keys follow the data and go along a row", onkeydown: (event) => this.key(event), onpointerleave: hideTip });
    place.append(make("div", { class: "controls" },
      views.length > 1 ? chooser("Experiment", views.map((view) => view.label), 0, (view) => { this.view = views[view]; this.paint(); }) : null,
      chooser("Colours show", [timed ? "share of the time" : "share of the arithmetic", this.data.sme2], Number(this.bySme2), (chosen) => { this.bySme2 = chosen === 1; this.paint(); }),
      chooser("Zoom", ZOOMS.map((zoom) => `${100 * zoom}%`), 0, (zoom) => this.size(ZOOMS[zoom]))),
    make("p", {}, this.data.lead), this.legend, make("div", { class: "graph" }, this.picture), this.details, this.note);
    this.lay();
    this.size(1);
    this.paint();
  }

  size(zoom) {
    const [wide, high] = [this.data.wide + 8, this.data.rows * ROW_HIGH];
    fill(this.picture, { viewBox: `-4 -4 ${wide} ${high}`, width: wide * zoom, height: high * zoom }, []);
  }

  // A line leaves a box below, passes rows straight and turns between them.
  path(from, to, passed) {
    const middle = (box) => box.x + BOX_WIDE / 2;
    let [x, row, path] = [middle(from), from.row, `M${middle(from)} ${from.row * ROW_HIGH + BOX_HIGH}`];
    const turn = (next) => {
      const [start, end] = [row * ROW_HIGH + BOX_HIGH, (row + 1) * ROW_HIGH];
      path += x === next ? `V${end}` : `C${x} ${(start + end) / 2} ${next} ${(start + end) / 2} ${next} ${end}`;
      [x, row] = [next, row + 1];
    };
    for (const next of passed.slice(0, to.row - from.row - 1)) {
      turn(next);
      path += `v${BOX_HIGH}`;
    }
    turn(middle(to));
    return path;
  }

  lay() {
    const lines = this.data.lines.flatMap(([from, targets, passed]) => targets.map((to) => {
      const line = draw("path", { d: this.path(this.boxes[from], this.boxes[to], passed) });
      this.boxes[from].lines.push(line);
      this.boxes[to].lines.push(line);
      return line;
    }));
    for (const box of this.boxes) {
      box.area = draw("rect", { width: BOX_WIDE, height: BOX_HIGH, rx: 5 });
      box.says = draw("text", { x: BOX_WIDE - 8, y: 17, "text-anchor": "end", class: "says" });
      box.name = draw("text", { x: 8, y: 17 });
      box.node = draw("g", { transform: `translate(${box.x} ${box.row * ROW_HIGH})`, role: "button", tabindex: box.at ? "-1" : "0" },
        box.area, box.name, box.says, draw("text", { x: 8, y: 33, class: "where" }, shortened(box.where, 30, box.module !== "")));
      box.node.addEventListener("focus", () => this.choose(box));
      box.node.addEventListener("click", () => box.node.focus());
      box.node.addEventListener("pointermove", (event) => showTip(event, this.told(box)));
    }
    this.picture.append(draw("g", { class: "lines", "aria-hidden": "true" }, ...lines), ...this.boxes.map((box) => box.node));
  }

  told(box) {
    const { texts, unit, timed } = this.data;
    const [operators, amount, share] = this.view.values[box.at].map((number) => texts[number]);
    const spent = amount === "-" ? [] : [[timed ? "time" : "arithmetic", `${amount} ${unit}, ${share}`]];
    return [["ran as", operators], ...box.facts.slice(0, -1), ...spent, box.facts.at(-1)];
  }

  paint() {
    const { texts, kinds } = this.data;
    const shares = this.view.values.map(([, , share]) => figure(texts[share]));
    const most = Math.max(...shares.filter((share) => !Number.isNaN(share)), 0.1);
    for (const box of this.boxes) {
      const share = shares[box.at];
      const silent = Number.isNaN(share);
      const says = this.bySme2 ? SME2[box.kind][1] : silent ? "" : texts[this.view.values[box.at][2]];
      box.says.textContent = says;
      box.name.textContent = shortened(box.label, 27 - says.length, box.label.includes("."));
      box.area.style.fill = this.bySme2 ? `var(--${SME2[box.kind][0]})` : silent ? "var(--paper)" : heatOf(share / most);
      fill(box.node, { class: silent && !this.bySme2 ? "silent" : "", "aria-label": this.told(box).map(([what, value]) => `${what}: ${value}`).join(", ") }, []);
    }
    const used = new Set(this.boxes.map((box) => box.kind));
    this.legend.replaceChildren(legendOf(this.bySme2
      ? kinds.map((word, kind) => [word, `var(--${SME2[kind][0]})`]).filter((_, kind) => used.has(kind))
      : [0, 0.25, 0.5, 0.75, 1].map((part) => [`${(part * most).toFixed(1)}%`, heatOf(part)])));
    this.note.textContent = [this.view.note, this.data.note].filter(Boolean).join(" ");
    if (this.chosen) this.choose(this.chosen);
  }

  choose(box) {
    for (const line of this.chosen?.lines ?? []) line.removeAttribute("class");
    this.chosen?.node.setAttribute("tabindex", "-1");
    this.chosen = box;
    for (const each of this.boxes) each.node.setAttribute("tabindex", each === box ? "0" : "-1");
    for (const line of box.lines) line.setAttribute("class", "on");
    this.details.replaceChildren(
      make("dl", { class: "facts" }, ...this.told(box).flatMap(([what, value]) => [make("dt", {}, what), make("dd", {}, value)])),
      box.module ? make("button", { type: "button", onclick: () => dispatchEvent(new CustomEvent("show-operators", { detail: box.module })) }, "Show the operators of this module") : "");
  }

  // One stop for the tab key; arrows follow the data, or go along a row.
  key(event) {
    const box = this.boxes.find(({ node }) => node === document.activeElement);
    if (!box) return;
    const row = this.boxes.filter((each) => each.row === box.row).sort((a, b) => a.x - b.x);
    const beside = (step) => row[row.indexOf(box) + step];
    const next = { ArrowDown: () => this.boxes[box.below[0]], ArrowUp: () => this.boxes[box.above[0]], ArrowRight: () => beside(1), ArrowLeft: () => beside(-1), Home: () => this.boxes[0], End: () => this.boxes.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    next()?.node.focus();
  }
}

explore("graph", (place) => new GraphExplorer(place));
