// Bars above one another, each as wide as what it stands for: the events of a run.
// An item is {depth, start, size, label, said, tip, colour, inside: how far below it may be looked into}.
const BAR = 26;
const LETTER = 6.9;
const PLAIN = "#5f6b7a";

function isLight(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
  return 0.3 * red + 0.59 * green + 0.11 * blue > 135;
}

class Flame {
  constructor(place, label) {
    this.place = place;
    this.picture = place.appendChild(draw("svg", { class: "flame", role: "group", "aria-label": label }));
    this.picture.addEventListener("keydown", (event) => this.key(event));
    this.picture.addEventListener("pointerleave", hideTip);
    new ResizeObserver(() => { if (this.items && this.width !== place.clientWidth) this.paint(); }).observe(place);
  }

  // `range` is what of it is looked at, `pick` is told what was chosen.
  show(items, range, pick, axis) {
    Object.assign(this, { items, range, pick, axis });
    this.paint();
  }

  paint() {
    this.width = this.place.clientWidth || 640;
    const { start, size, depth: top } = this.range;
    const scale = this.width / (size || 1);
    const inside = this.items.filter((item) => item.start < start + size && item.start + item.size > start && item.depth >= top);
    const bottom = inside.reduce((most, item) => Math.max(most, item.depth), top) + 1;
    const height = (bottom - top) * BAR + (this.axis ? 20 : 0);
    fill(this.picture, { viewBox: `0 0 ${this.width} ${height}`, height }, []);
    this.bars = [];
    for (const item of inside) {
      const left = Math.max(0, (item.start - start) * scale);
      const right = Math.min(this.width, (item.start + item.size - start) * scale);
      if (right - left < 0.4) continue;
      const letters = Math.floor((right - left - 8) / LETTER);
      const text = letters < 3 ? "" : item.label.length <= letters ? item.label : `${item.label.slice(0, letters - 1)}…`;
      const bar = draw("g", { role: "button", tabindex: "-1", "aria-label": item.said, class: isLight(item.colour) ? "dark" : null },
        draw("rect", { x: left, y: (item.depth - top) * BAR, width: right - left, height: BAR - 1, fill: item.colour }),
        text ? draw("text", { x: left + 5, y: (item.depth - top) * BAR + 17 }, text) : null);
      bar.addEventListener("click", () => { this.focus(bar); this.pick(item); });
      bar.addEventListener("pointermove", (event) => showTip(event, item.tip));
      this.bars.push({ bar, item, left, right });
    }
    this.picture.replaceChildren(...this.bars.map(({ bar }) => bar), ...(this.axis ? this.ticks(scale, height) : []));
    if (this.bars.length) this.bars[0].bar.setAttribute("tabindex", "0");
  }

  ticks(scale, height) {
    const { start, size } = this.range;
    const rough = size / Math.max(2, this.width / 110);
    const power = 10 ** Math.floor(Math.log10(rough || 1));
    const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough);
    const first = Math.ceil(start / step) * step;
    const marks = [];
    for (let at = first; at <= start + size; at += step) {
      const x = (at - start) * scale;
      const anchor = x < 20 ? "start" : x > this.width - 40 ? "end" : "middle";
      marks.push(draw("text", { class: "axis", x, y: height - 4, "text-anchor": anchor, "aria-hidden": "true" }, this.axis(at, step)));
    }
    return marks;
  }

  focus(bar) {
    for (const each of this.bars) each.bar.setAttribute("tabindex", each.bar === bar ? "0" : "-1");
    bar.focus();
  }

  // One stop for the tab key; arrows go along a level and between levels.
  key(event) {
    const at = this.bars.findIndex(({ bar }) => bar === document.activeElement);
    if (at < 0) return;
    const { item, left, right } = this.bars[at];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(item);
      return;
    }
    const level = (depth) => this.bars.filter((each) => each.item.depth === depth);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const row = level(item.depth);
    const next = step ? row[row.findIndex(({ bar }) => bar === document.activeElement) + step]
      : event.key === "ArrowDown" ? level(item.depth + 1).find((each) => each.right > left && each.left < right)
      : event.key === "ArrowUp" ? level(item.depth - 1).find((each) => each.left <= left + 0.5 && each.right >= right - 0.5) : null;
    if (!next) return;
    event.preventDefault();
    this.focus(next.bar);
  }
}

const legendOf = (parts) => make("ul", { class: "legend" }, ...parts.map(([name, colour]) => make("li", {},
  draw("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, draw("rect", { width: 10, height: 10, rx: 2, fill: colour })), name)));
