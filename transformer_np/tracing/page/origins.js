"use strict";
// Where an entry of a result comes from: the trees of provenance.py, walked backwards from one entry to the inputs.

class Origins {
  // views: those of the statement's inputs, in the order in which the trees number them.
  constructor(numbers, views) {
    this.numbers = numbers;
    this.views = views;
  }

  // A Map from the number of an input to the Set of its entries that the entry `flat` of the tree's result comes from.
  of(tree, flat) {
    this.found = new Map();
    this.walk(tree, [flat]);
    return this.found;
  }

  // The other way round: the Set of entries of the result that entry `flat` of input k goes into; null if that would
  // take long to find out.
  reached(tree, k, flat, milliseconds = 300) {
    const [set, end] = [new Set(), performance.now() + milliseconds];
    const n = this.shape(tree).reduce((a, b) => a * b, 1);
    for (let p = 0; p < n; p++) {
      if (this.of(tree, p).get(k)?.has(flat)) set.add(p);
      if (performance.now() > end) return null;
    }
    return set;
  }

  shape(tree) {
    return tree[0] === "in" ? this.views[tree[1]].shape : tree[1];
  }

  walk(tree, points) {
    this[tree[0]](tree, points);
  }

  in(tree, points) {
    const set = this.found.get(tree[1]) || new Set();
    points.forEach((p) => set.add(p));
    this.found.set(tree[1], set);
  }

  same([, shape, parts], points) {
    for (const part of parts) {
      const own = this.shape(part);
      this.walk(part, points.map((p) => ravel(stretched(unravel(p, shape), own), own)));
    }
  }

  product([, shape, a, b], points) {
    const [left, right] = [this.shape(a), this.shape(b)];
    const inner = left[left.length - 1];
    const [rows, columns] = [[], []];
    for (const point of points) {
      const index = unravel(point, shape);
      const [i, j] = index.slice(-2);
      const lead = index.slice(0, -2);
      for (let k = 0; k < inner; k++) {
        rows.push(ravel(stretched([...lead, i, k], left), left));
        columns.push(ravel(stretched([...lead, k, j], right), right));
      }
    }
    this.walk(a, rows);
    this.walk(b, columns);
  }

  move([, shape, axes, part], points) {
    const own = this.shape(part);
    this.walk(part, points.map((p) => {
      const index = unravel(p, shape);
      const before = new Array(own.length);
      axes.forEach((axis, j) => (before[axis] = index[j]));
      return ravel(before, own);
    }));
  }

  flat([, , part], points) {
    this.walk(part, points);
  }

  along([, shape, axes, parts], points) {
    for (const part of parts) {
      const own = this.shape(part);
      const all = new Set();
      for (const point of points) {
        let lines = [stretched(unravel(point, shape), own)];
        for (const axis of axes) {
          const at = own.length + axis;
          if (at < 0) continue;
          lines = lines.flatMap((line) => Array.from({ length: own[at] }, (_, k) => line.with(at, k)));
        }
        lines.forEach((line) => all.add(ravel(line, own)));
      }
      this.walk(part, [...all]);
    }
  }

  rows([, shape, table, ids], points) {
    const [own, where] = [this.shape(table), this.shape(ids)];
    const [entries, places] = [[], []];
    for (const point of points) {
      const index = unravel(point, shape);
      const place = ravel(index.slice(0, where.length), where);
      places.push(place);
      entries.push(ravel([this.look(ids, place), ...index.slice(where.length)], own));
    }
    this.walk(table, entries);
    this.walk(ids, places);
  }

  gather([, shape, ids, rows], points) {
    const own = this.shape(rows);
    const n = this.shape(ids).reduce((a, b) => a * b, 1);
    const [entries, places] = [[], []];
    for (const point of points) {
      const [word, ...rest] = unravel(point, shape);
      for (let place = 0; place < n; place++) {
        if (this.look(ids, place) !== word) continue;
        places.push(place);
        entries.push(ravel([place, ...rest], own));
      }
    }
    this.walk(ids, places);
    this.walk(rows, entries);
  }

  cut([, shape, starts, part], points) {
    const own = this.shape(part);
    this.walk(part, points.map((p) => ravel(unravel(p, shape).map((i, axis) => i + starts[axis]), own)));
  }

  repeat([, shape, axis, n, part], points) {
    const own = this.shape(part);
    this.walk(part, points.map((p) => {
      const index = unravel(p, shape);
      index[axis] = Math.floor(index[axis] / n);
      return ravel(index, own);
    }));
  }

  join([, shape, axis, parts], points) {
    let start = 0;
    for (const part of parts) {
      const own = this.shape(part);
      const inside = points.map((p) => unravel(p, shape)).filter((index) => index[axis] >= start && index[axis] < start + own[axis]);
      const from = start;
      if (inside.length) this.walk(part, inside.map((index) => ravel(index.with(axis, index[axis] - from), own)));
      start += own[axis];
    }
  }

  nothing() {}

  turn([, shape, axis, part], points) {
    this.walk(part, points.map((p) => {
      const index = unravel(p, shape);
      return ravel(index.with(axis, shape[axis] - 1 - index[axis]), shape);
    }));
  }

  into([, shape, starts, window, part, before], points) {
    const [inside, outside] = [[], []];
    for (const point of points) {
      const index = unravel(point, shape).map((i, axis) => i - starts[axis]);
      if (index.every((i, axis) => i >= 0 && i < window[axis])) inside.push(ravel(index, window));
      else outside.push(point);
    }
    if (inside.length) this.walk(part, inside);
    if (outside.length && before) this.walk(before, outside);
  }

  // The value of an entry of ids: an input, or an input in another shape.
  look(tree, flat) {
    while (tree[0] === "flat") tree = tree[2];
    if (tree[0] !== "in") return -1;
    const view = this.views[tree[1]];
    return view.values ? view.values[flat] : this.numbers.values(view)[flat];
  }
}

// An index into a part that is broadcast: as many axes as the part has, 0 where its size is 1.
function stretched(index, shape) {
  return shape.map((n, axis) => (n === 1 ? 0 : index[index.length - shape.length + axis]));
}

// A set of entries in words: "row 3 of q", "column 5 of k", "q[0, 3, 5]".
function inWords(name, view, set, label) {
  const { shape } = view;
  const size = shape.reduce((a, b) => a * b, 1);
  const points = [...set];
  if (points.length === 0) return `nothing of ${name}`;
  if (points.length === 1) return shape.length ? `${name}[${unravel(points[0], shape).join(", ")}]` : name;
  if (points.length === size) return `all of ${name}`;
  const first = unravel(points[0], shape);
  const varies = shape.map((n, axis) => points.some((p) => unravel(p, shape)[axis] !== first[axis]));
  const one = varies.filter(Boolean).length === 1;
  const axis = varies.indexOf(true);
  if (one && points.length === shape[axis] && shape.length >= 2 && axis >= shape.length - 2) {
    const other = axis === shape.length - 1 ? shape.length - 2 : shape.length - 1;
    const text = label(other, first[other]);
    return `${axis === shape.length - 1 ? "row" : "column"} ${first[other]}${text ? ` (${text})` : ""} of ${name}`;
  }
  return `${points.length} entries of ${name}`;
}
