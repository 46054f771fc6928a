"use strict";
// One array as a heat map: heads side by side, labels along its rows and columns, a cursor for mouse and keyboard.

// The colours of the page, as the style sheet has them for the theme on view: [r, g, b] to mix, texts to draw with.
function palette() {
  const style = getComputedStyle(document.documentElement);
  const text = (name) => style.getPropertyValue(`--${name}`).trim();
  const mixed = (name) => text(name).match(/\d+/g).map(Number);
  return { low: mixed("low"), zero: mixed("zero"), high: mixed("high"), one: mixed("one"), ink: text("ink"),
    soft: text("soft"), line: text("grid"), cursor: text("ink"), origin: text("focus"), halo: text("panel") };
}
const FONT = "12px system-ui, sans-serif";

class Heatmap {
  // app: the viewer. name: of the array. view: see Page._view. on: {move(flat or null)} is told where the cursor is.
  constructor(app, name, view, on) {
    Object.assign(this, { app, name, view, on });
    this.shape = view.shape;
    this.kept = view.kept || view.shape;
    this.cursor = null;
    this.marked = null;
    const pinned = app.trail.pinned(view.number);
    this.pinned = pinned === null || this.toKept(pinned) < 0 ? null : this.toKept(pinned);
    this.values = app.numbers.values(view);
    this.measure();
    this.build();
  }

  // Smallest and largest, and whether the colours run from 0 up or to both sides of 0.
  measure() {
    let [low, high] = [Infinity, -Infinity];
    for (const x of this.values) {
      if (!Number.isFinite(x)) continue;
      if (x < low) low = x;
      if (x > high) high = x;
    }
    [this.low, this.high] = low > high ? [0, 0] : [low, high];
    this.signed = this.low < 0;
    this.top = Math.max(Math.abs(this.low), Math.abs(this.high)) || 1;
  }

  build() {
    this.element = element("figure", { class: "map" });
    const caption = element("figcaption", {}, element("code", {}, this.name), " ", element("span", { class: "shape" },
      this.app.shapeText(this.view)), this.links(), this.legend());
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.field = element("div", {
      class: "field", tabindex: "0", role: "application", "aria-roledescription": "heat map",
      "aria-label": `${this.name}, ${this.app.shapeWords(this.view)}, from ${short(this.low)} to ${short(this.high)}. ` +
        "Arrow keys move from entry to entry, Enter pins one, Escape leaves.",
    }, this.canvas);
    this.reading = element("output", { class: "reading" });
    this.element.append(caption, this.reading, this.field);
    if (this.sheet().tiles > 1) this.element.classList.add("many");
    this.field.addEventListener("pointermove", (event) => this.point(event));
    this.field.addEventListener("pointerdown", (event) => this.point(event));
    this.field.addEventListener("pointerleave", () => this.set(null));
    this.field.addEventListener("click", (event) => {
      this.point(event);  // after a touch the finger has left, and the cursor with it
      this.nailDown();
      if (event.pointerType === "touch") this.set(null);
    });
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("blur", () => this.set(null));
    this.rest();
  }

  legend() {
    if (this.view.picture === "image") {
      return element("span", { class: "legend" }, short(this.low), element("span", { class: "bar greys" }), short(this.high));
    }
    if (this.view.kind === "bool") {
      return element("span", { class: "legend" }, element("span", { class: "swatch yes" }), "True ",
        element("span", { class: "swatch no" }), "False");
    }
    const from = this.signed ? short(-this.top) : "0";
    const bar = element("span", { class: this.signed ? "bar signed" : "bar" });
    const cropped = this.view.kept ? ` (first ${this.kept.join(" × ")} of ${this.shape.join(" × ")})` : "";
    return element("span", { class: "legend" }, from, bar, short(this.top), cropped);
  }

  // Buttons to where the array was made, where it is used, and to its gradient.
  links() {
    const { made, used, gradient } = this.on.trail || {};
    const box = element("span", { class: "links" });
    const add = (words, scenes) => {
      box.append(element("span", {}, words));
      for (const i of scenes) {
        const button = element("button", { type: "button", "aria-label": `${this.name}: ${words} step ${i + 1}` }, String(i + 1));
        button.addEventListener("click", () => this.app.follow(i));
        box.append(button);
      }
    };
    if (made !== null && made !== undefined) add("made in", [made]);
    if (used?.length) add("used in", used.slice(0, 4));
    if (used?.length > 4) box.append(element("span", {}, `and ${used.length - 4} more`));
    if (gradient !== null && gradient !== undefined) add("gradient in", [gradient]);
    return box;
  }

  // What the reading says while no entry is pointed at.
  rest() {
    if (this.pinned !== null) {
      this.reading.textContent = this.say(this.pinned);
      return;
    }
    const n = this.values.length;
    if (n === 1) this.reading.textContent = this.app.numbers.text(this.view, 0);
    else if (this.view.kind === "bool") this.reading.textContent = `${this.values.filter(Boolean).length} of ${n} True`;
    else this.reading.textContent = `smallest ${short(this.low)}, largest ${short(this.high)}`;
  }

  // Whether the tiles need more room than half a window to stand side by side with their labels.
  get broad() {
    const s = this.sheet();
    const half = document.getElementById("main").clientWidth / 2 - 84;
    return s.tiles > 1 && Boolean(this.labels(-1, s.columns)) && s.tiles * (s.columns * 8 + 8) > half;
  }

  // Rows, columns and tiles of what is shown: the last two axes, side by side for each entry of the axis before.
  sheet() {
    const [kept, n] = [this.kept, this.kept.length];
    const columns = n ? kept[n - 1] : 1;
    // A sentence with time first, (T, 1, ..): its steps are rows.
    const steps = n === 3 && kept[1] === 1 && this.shape[0] > 1 && this.app.batch === 1;
    const rows = n > 1 ? kept[steps ? 0 : n - 2] : 1;
    const lead = steps ? [] : kept.slice(0, Math.max(0, n - 2));
    const sentences = lead.length && this.shape[0] === this.app.batch && this.app.batch > 1 ? lead[0] : 1;
    const all = lead.reduce((a, b) => a * b, 1);
    const tiles = all / sentences;
    const first = sentences > 1 ? Math.min(this.app.sentence, sentences - 1) * tiles : 0;
    return { rows, columns, tiles: Math.min(tiles, 24), first, rowAxis: steps ? -3 : -2 };
  }

  layout(width) {
    const s = this.sheet();
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    const wide = (labels) => Math.ceil(Math.max(0, ...labels.map((text) => widthOf(context, text))));
    const rowLabels = this.labels(s.rowAxis, s.rows);
    const columnLabels = this.labels(-1, s.columns);
    s.stamps = this.app.stamps(this.view, this.shape.length + s.rowAxis);
    s.columnStamps = this.app.stamps(this.view, this.shape.length - 1);
    s.left = rowLabels ? Math.min(96, wide(rowLabels) + 6) + (s.stamps ? 16 : 0) : 2;
    s.head = s.tiles > 1 ? 16 : 0;
    s.gap = s.tiles > 1 ? 8 : 0;
    const room = width - s.left - 2;
    const least = columnLabels ? 8 : 3;
    let across = Math.max(1, Math.min(s.tiles, Math.floor((room + s.gap) / (s.columns * least + s.gap))));
    if (across < s.tiles) across = Math.ceil(s.tiles / Math.ceil(s.tiles / across));
    s.across = across;
    s.w = Math.min(s.rows === 1 && s.columns < 30 ? 40 : 22, (room - (across - 1) * s.gap) / (across * s.columns));
    if (s.w >= 3) s.w = Math.floor(s.w);
    const tall = rowLabels ? 15 : Math.min(18, Math.max(300 / s.rows, 1));
    s.h = s.rows === 1 ? 22 : rowLabels && s.rows > 40 ? 11 : tall;
    if (s.h >= 3) s.h = Math.floor(s.h);
    if (this.view.picture) s.w = s.h = Math.max(1, Math.min(s.w, Math.floor(260 / Math.max(s.rows, s.columns)) || 1));
    const widest = columnLabels ? wide(columnLabels) : 0;
    s.turned = widest > s.w - 2;
    s.font = Math.max(9, Math.min(12, Math.floor(s.w)));
    if (s.columnStamps) s.turned = false;
    s.top = s.head + (columnLabels && s.w >= 8 ? (s.turned ? Math.min(84, (widest * s.font) / 12 + 6) : 16) : 0);
    s.rowLabels = s.h >= 10 ? rowLabels : null;
    s.columnLabels = s.w >= 8 ? columnLabels : null;
    s.down = Math.ceil(s.tiles / across);
    s.wide = s.left + across * s.columns * s.w + (across - 1) * s.gap + 2;
    s.tall = s.down * (s.top + s.rows * s.h) + (s.down - 1) * s.gap + 2;
    return s;
  }

  labels(axis, n) {
    const at = this.shape.length + axis;
    return at < 0 ? null : this.app.labels(this.view, at, n);
  }

  tileAt(s, tile) {
    const [column, row] = [tile % s.across, Math.floor(tile / s.across)];
    return [s.left + column * (s.columns * s.w + s.gap), row * (s.top + s.rows * s.h + s.gap) + s.top];
  }

  // Draw, after finding the sizes anew for a width, or as they were.
  draw(width = null) {
    const s = width === null && this.s ? this.s : (this.s = this.layout(width || this.element.clientWidth || 320));
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.ceil(s.wide * ratio);
    this.canvas.height = Math.ceil(s.tall * ratio);
    this.canvas.style.width = `${s.wide}px`;
    this.canvas.style.height = `${s.tall}px`;
    const c = this.canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.imageSmoothingEnabled = false;
    c.clearRect(0, 0, s.wide, s.tall);
    this.palette = this.app.colours;
    for (let tile = 0; tile < s.tiles; tile++) this.drawTile(c, s, tile);
    this.drawMarks(c, s);
  }

  drawTile(c, s, tile) {
    const [x, y] = this.tileAt(s, tile);
    const picture = this.picture(s);
    c.drawImage(picture, 0, tile * s.rows, s.columns, s.rows, x, y, s.columns * s.w, s.rows * s.h);
    c.strokeStyle = this.palette.line;
    c.lineWidth = 1;
    c.beginPath();
    for (let j = 1; s.w >= 7 && j < s.columns; j++) c.rect(x + j * s.w - 0.5, y, 0, s.rows * s.h);
    for (let i = 1; s.h >= 7 && i < s.rows; i++) c.rect(x, y + i * s.h - 0.5, s.columns * s.w, 0);
    c.stroke();
    if (this.view.picture) this.drawCuts(c, s, x, y);
    c.font = FONT;
    c.fillStyle = this.palette.soft;
    if (s.head) c.fillText(this.tileName(s, tile), x, y - s.top + 11);
    this.drawLabels(c, s, x, y, tile % s.across === 0);
    if (this.view.kind === "int" && s.w >= 20 && s.h >= 14) this.drawNumbers(c, s, tile, x, y);
  }

  // Where an image is cut into patches.
  drawCuts(c, s, x, y) {
    const size = this.app.page.patches.size;
    c.strokeStyle = this.palette.origin;
    c.beginPath();
    for (let j = size; j < s.columns; j += size) c.rect(x + j * s.w - 0.5, y, 0, s.rows * s.h);
    for (let i = size; i < s.rows; i += size) c.rect(x, y + i * s.h - 0.5, s.columns * s.w, 0);
    c.stroke();
  }

  drawLabels(c, s, x, y, leftmost) {
    c.fillStyle = this.palette.ink;
    if (s.rowLabels && leftmost) {
      c.textAlign = "right";
      const beside = s.stamps ? 16 : 0;
      s.rowLabels.forEach((t, i) => c.fillText(clipped(c, t, s.left - 6 - beside), x - 5 - beside, y + (i + 0.5) * s.h + 4));
      const size = Math.min(13, s.h - 1);
      s.stamps?.slice(0, s.rows).forEach((stamp, i) => this.stamp(c, stamp, x - 4 - size, y + (i + 0.5) * s.h - size / 2, size));
    }
    c.textAlign = "left";
    if (!s.columnLabels) return;
    if (s.columnStamps) {
      const size = Math.min(13, s.w - 1);
      s.columnStamps.slice(0, s.columns).forEach((stamp, j) => this.stamp(c, stamp, x + (j + 0.5) * s.w - size / 2, y - 2 - size, size));
      return;
    }
    c.font = FONT.replace("12", s.font);
    s.columnLabels.forEach((t, j) => {
      c.save();
      c.translate(x + (j + 0.5) * s.w, y - 4);
      if (s.turned) c.rotate(-Math.PI / 2);
      else c.textAlign = "center";
      c.fillText(s.turned ? clipped(c, t, 80) : t, 0, s.turned ? 4 : -1);
      c.restore();
    });
  }

  // A patch as it looks, in a frame; the class token, which looks like nothing, as a frame with a cross.
  stamp(c, stamp, x, y, size) {
    if (stamp) c.drawImage(stamp, x, y, size, size);
    c.strokeStyle = this.palette.soft;
    c.lineWidth = 1;
    c.beginPath();
    c.rect(x - 0.5, y - 0.5, size + 1, size + 1);
    if (!stamp) c.moveTo(x, y), c.lineTo(x + size, y + size), c.moveTo(x + size, y), c.lineTo(x, y + size);
    c.stroke();
  }

  drawNumbers(c, s, tile, x, y) {
    c.textAlign = "center";
    for (let i = 0; i < s.rows; i++) {
      for (let j = 0; j < s.columns; j++) {
        const at = this.entry(s, tile, i, j);
        const text = this.app.numbers.text(this.view, at);
        const [r, g, b] = this.colour(this.values[at]);
        c.fillStyle = r * 0.3 + g * 0.6 + b * 0.1 > 140 ? "#111" : "#fff";
        if (c.measureText(text).width < s.w) c.fillText(text, x + (j + 0.5) * s.w, y + (i + 0.5) * s.h + 4);
      }
    }
    c.textAlign = "left";
  }

  // All tiles, one below the other, with one pixel for each entry; kept until the colours change.
  picture(s) {
    const key = `${document.documentElement.dataset.theme} ${s.first}`;
    if (this.pictured === key) return this.image;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [s.columns, s.rows * s.tiles];
    const image = new ImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const [shades, start] = [this.shades(), this.entry(s, 0, 0, 0)];
    for (let p = 0; p < pixels.length; p++) {
      const x = this.values[start + p];
      pixels[p] = Number.isFinite(x) ? shades[255 + Math.round((x / this.top) * 255)] : packed(this.colour(x));
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    [this.pictured, this.image] = [key, canvas];
    return canvas;
  }

  // The colours of -top .. top in 511 steps, each as one number.
  shades() {
    if (this.shadesOf !== this.palette) {
      this.shadesOf = this.palette;
      this.all = Uint32Array.from({ length: 511 }, (_, k) => packed(this.colour(((k - 255) / 255) * this.top)));
    }
    return this.all;
  }

  colour(x) {
    const { low, zero, high, one } = this.palette;
    if (Number.isNaN(x)) return [255, 0, 200];
    if (!Number.isFinite(x)) return [128, 128, 128];
    if (this.view.picture === "image") return grey(x, ...(this.shape[1] === 3 ? [this.high, this.low] : [this.low, this.high]));
    const part = Math.min(1, Math.abs(x) / this.top);
    const end = !this.signed ? one : x < 0 ? low : high;
    return zero.map((z, k) => Math.round(z + (end[k] - z) * part));
  }

  entry(s, tile, i, j) {
    return ((s.first + tile) * s.rows + i) * s.columns + j;
  }

  // From an entry of the array to its place on the sheet and back; an array that is not whole has other numbers.
  toKept(flat) {
    if (!this.view.kept) return flat;
    const index = unravel(flat, this.shape);
    return index.every((i, axis) => i < this.kept[axis]) ? ravel(index, this.kept) : -1;
  }

  toWhole(flat) {
    return this.view.kept ? ravel(unravel(flat, this.kept), this.shape) : flat;
  }

  place(s, flat) {
    const size = s.rows * s.columns;
    const tile = Math.floor(flat / size) - s.first;
    return { tile, i: Math.floor((flat % size) / s.columns), j: flat % s.columns };
  }

  // Outline the cursor, and the entries that an entry of the result comes from, or that it reaches.
  drawMarks(c, s) {
    if (this.marked) {
      const tiles = new Map();
      for (const flat of this.marked) {
        const kept = this.toKept(flat);
        if (kept < 0) continue;
        const { tile, i, j } = this.place(s, kept);
        if (tile < 0 || tile >= s.tiles) continue;
        const box = tiles.get(tile) || { n: 0, top: i, bottom: i, left: j, right: j, cells: [] };
        Object.assign(box, { n: box.n + 1, top: Math.min(box.top, i), bottom: Math.max(box.bottom, i),
          left: Math.min(box.left, j), right: Math.max(box.right, j) });
        box.cells.push([i, j]);
        tiles.set(tile, box);
      }
      for (const [tile, box] of tiles) {
        const whole = box.n === (box.bottom - box.top + 1) * (box.right - box.left + 1);
        if (whole) this.outline(c, s, tile, box.top, box.left, box.bottom, box.right, this.palette.origin);
        else box.cells.forEach(([i, j]) => this.outline(c, s, tile, i, j, i, j, this.palette.origin));
      }
    }
    for (const at of [this.pinned, this.cursor]) {
      if (at === null) continue;
      const { tile, i, j } = this.place(s, at);
      if (tile < 0 || tile >= s.tiles) continue;
      this.outline(c, s, tile, i, j, i, j, this.palette.cursor);
      if (at === this.pinned) this.nail(c, s, tile, i, j);
    }
  }

  outline(c, s, tile, top, left, bottom, right, colour) {
    const [x, y] = this.tileAt(s, tile);
    const box = [x + left * s.w, y + top * s.h, (right - left + 1) * s.w, (bottom - top + 1) * s.h];
    c.lineWidth = 4;
    c.strokeStyle = this.palette.halo;
    c.strokeRect(...box);
    c.lineWidth = 2;
    c.strokeStyle = colour;
    c.strokeRect(...box);
  }

  // Lines from the edges of the tile to the pinned entry: the eye finds it from the back of a room.
  nail(c, s, tile, i, j) {
    const [x, y] = this.tileAt(s, tile);
    const [left, top, right, bottom] = [x + j * s.w, y + i * s.h, x + (j + 1) * s.w, y + (i + 1) * s.h];
    c.lineWidth = 1.5;
    c.strokeStyle = this.palette.cursor;
    c.setLineDash([2, 2]);
    c.beginPath();
    for (const [a, b, d, e] of [[x, (top + bottom) / 2, left, (top + bottom) / 2],
      [right, (top + bottom) / 2, x + s.columns * s.w, (top + bottom) / 2],
      [(left + right) / 2, y, (left + right) / 2, top], [(left + right) / 2, bottom, (left + right) / 2, y + s.rows * s.h]]) {
      c.moveTo(a, b);
      c.lineTo(d, e);
    }
    c.stroke();
    c.setLineDash([]);
  }

  point(event) {
    const s = this.s;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    for (let tile = 0; tile < s.tiles; tile++) {
      const [left, top] = this.tileAt(s, tile);
      const [j, i] = [Math.floor((x - left) / s.w), Math.floor((y - top) / s.h)];
      if (i >= 0 && i < s.rows && j >= 0 && j < s.columns) return this.set(this.entry(s, tile, i, j));
    }
    return this.set(null);
  }

  key(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (event.key === "Escape") {
      this.set(null);
      this.field.blur();
    } else if (event.key === "Enter" || event.key === " ") {
      this.nailDown();
    } else if (moves[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      this.step(...moves[event.key]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // Pin the entry under the cursor, or let go of it if it is pinned.
  nailDown() {
    this.app.pin(this, this.cursor === this.pinned ? null : this.cursor);
  }

  // Move the cursor; past the right edge of a head is the next head.
  step(down, right) {
    const s = this.s;
    if (this.cursor === null && this.pinned === null) return this.set(this.beginning(s), true);
    let { tile, i, j } = this.place(s, this.cursor ?? this.pinned);
    [i, j] = [i + down, j + right];
    if (j < 0 && tile > 0) [tile, j] = [tile - 1, s.columns - 1];
    if (j >= s.columns && tile < s.tiles - 1) [tile, j] = [tile + 1, 0];
    if (i < 0 || i >= s.rows || j < 0 || j >= s.columns) return undefined;
    return this.set(this.entry(s, tile, i, j), true);
  }

  // Where the cursor begins: at the first entry that is marked, so that a number can be followed on by key.
  beginning(s) {
    const marked = [...(this.marked || [])].map((flat) => this.toKept(flat)).filter((flat) => {
      const { tile } = this.place(s, Math.max(flat, 0));
      return flat >= 0 && tile >= 0 && tile < s.tiles;
    });
    return marked.length ? Math.min(...marked) : this.entry(s, 0, 0, 0);
  }

  set(flat, spoken = false) {
    if (flat === this.cursor) return;
    this.cursor = flat;
    if (flat === null) this.rest();
    else this.reading.textContent = this.say(flat);
    this.reading.setAttribute("aria-live", spoken ? "polite" : "off");
    this.draw();
    this.tell();
  }

  // Tell the viewer which entry it is about: that under the cursor, or the pinned one.
  tell() {
    const flat = this.cursor ?? this.pinned;
    this.on.move(flat === null ? null : this.toWhole(flat));
  }

  say(flat) {
    const index = unravel(this.toWhole(flat), this.shape);
    const words = index.map((i, axis) => this.app.labels(this.view, axis, null, i)).filter(Boolean);
    const number = this.app.numbers.text(this.view, flat);
    const place = index.length ? `[${index.join(", ")}]` : "";
    return `${this.name}${place} = ${number}${words.length ? `   (${words.join(" → ")})` : ""}`;
  }

  tileName(s, tile) {
    const { shape } = this;
    const lead = this.kept.slice(0, -2);
    const index = unravel(s.first + tile, lead);
    const label = shape.length > 2 ? this.app.labels(this.view, shape.length - 3, null, index[index.length - 1]) : "";
    if (label) return label;
    if (this.view.picture) return shape[1] > 1 ? `channel ${index[1]}` : "";
    if (shape.length === 4 && !this.view.headless) return `head ${index[1]}`;
    return `[${index.join(", ")}]`;
  }

  mark(set) {
    this.marked = set;
    this.draw();
  }
}

// A pixel of an image: the smallest number is the paper, the largest the ink.
function grey(x, low, high) {
  const shade = Math.round(255 * (1 - (x - low) / (high - low || 1)));
  return [shade, shade, shade];
}

function packed([r, g, b]) {
  return (255 << 24) | (b << 16) | (g << 8) | r;
}

// To measure a text takes longer than anything else here, and the same few texts come again and again.
const WIDTHS = new Map();

function widthOf(context, text) {
  if (!WIDTHS.has(text)) WIDTHS.set(text, context.measureText(text).width);
  return WIDTHS.get(text);
}

function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  while (text.length > 1 && context.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return `${text}…`;
}
