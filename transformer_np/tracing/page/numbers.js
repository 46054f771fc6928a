"use strict";
// The numbers of the trace: unpacked from five planes of bytes (see packing.py), and written with four digits.

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// Unpack text of a known length. Read chunk by chunk: a Blob or a Response would ask the browser's other processes.
async function inflate(text, size) {
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  writer.write(bytesOf(text.trim()));
  writer.close();
  const [reader, all] = [stream.readable.getReader(), new Uint8Array(size)];
  for (let at = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return all;
    all.set(value, at);
    at += value.length;
  }
}

class Numbers {
  constructor(planes, size) {
    const plane = (i) => planes.subarray(i * size, (i + 1) * size);
    [this.low, this.middle, this.high] = [plane(0), plane(1), plane(2)];
    [this.exponentLow, this.exponentHigh] = [plane(3), plane(4)];
    this.cache = new Map();
  }

  mantissa(i) {
    return this.low[i] | (this.middle[i] << 8) | ((this.high[i] & 127) << 16);
  }

  negative(i) {
    return this.high[i] > 127;
  }

  exponent(i) {
    return ((this.exponentLow[i] | (this.exponentHigh[i] << 8)) << 16) >> 16;
  }

  value(i) {
    const m = this.mantissa(i);
    const sign = this.negative(i) ? -1 : 1;
    if (m === 0) return 0;
    if (m === 1) return NaN;
    if (m === 2) return sign * Infinity;
    const e = this.exponent(i) - 4;
    return (sign * (e < 0 ? m / 10 ** -e : m * 10 ** e)) || sign * Number(`${m}e${e}`);
  }

  // The values of a view, in order, kept for the next time.
  values(view) {
    const n = (view.kept || view.shape).reduce((a, b) => a * b, 1);
    const key = `${view.at} ${n}`;
    if (!this.cache.has(key)) {
      if (this.cache.size > 200) this.cache.clear();
      this.cache.set(key, Float64Array.from({ length: n }, (_, i) => this.value(view.at + i)));
    }
    return this.cache.get(key);
  }

  // Four significant digits, as Python's format(x, ".4g") writes them.
  text(view, i) {
    if (view.values) return String(view.values[i]);
    const at = view.at + i;
    const m = this.mantissa(at);
    if (view.kind === "bool") return m === 0 ? "False" : "True";
    if (m === 0) return "0";
    const sign = this.negative(at) ? "-" : "";
    if (m === 1) return "nan";
    if (m === 2) return `${sign}inf`;
    if (view.kind === "int") return String(Math.round(this.value(at)));
    let e = this.exponent(at);
    let four = Math.floor((m + 5) / 10);
    if (four === 10000) [four, e] = [1000, e + 1];
    const digits = String(four);
    if (e < -4 || e >= 4) {
      const power = `${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
      return `${sign}${trimmed(`${digits[0]}.${digits.slice(1)}`)}e${power}`;
    }
    if (e < 0) return sign + trimmed(`0.${"0".repeat(-e - 1)}${digits}`);
    return sign + trimmed(`${digits.slice(0, e + 1)}.${digits.slice(e + 1)}`);
  }
}

function trimmed(text) {
  return text.replace(/\.?0+$/, "");
}

// A number that was computed here, such as a smallest value.
function short(x) {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return (size < 1e-3 || size >= 1e4 ? x.toExponential(1) : String(Number(x.toPrecision(3)))).replaceAll("-", "−");
}

function unravel(flat, shape) {
  const index = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = flat % shape[axis];
    flat = Math.floor(flat / shape[axis]);
  }
  return index;
}

function ravel(index, shape) {
  return index.reduce((flat, i, axis) => flat * shape[axis] + i, 0);
}
