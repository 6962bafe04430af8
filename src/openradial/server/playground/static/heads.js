// What a head makes of outputs: probabilities of the classes. The same formulas as openradial.functional.

export const CLASSES = 3;
const WIDTH = 2 * CLASSES; // of a row of outputs: softmax first, then radial
const AT = { softmax: 0, radial: CLASSES };

let table = null;

// Numbers of half precision, by a table of all there are.
export function halves(buffer) {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => half(bits));
  const codes = new Uint16Array(buffer);
  const values = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) values[i] = table[codes[i]];
  return values;
}

export function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function softmax(o, start, into) {
  const most = Math.max(o[start], o[start + 1], o[start + 2]);
  let sum = 0;
  for (let k = 0; k < CLASSES; k++) sum += into[k] = Math.exp(o[start + k] - most);
  for (let k = 0; k < CLASSES; k++) into[k] /= sum;
}

export function radial(o, start, into, { beta, scale, cutoff }) {
  for (let k = 0; k < CLASSES; k++) {
    let square = 0;
    for (let j = 0; j < CLASSES; j++) square += (o[start + j] - (j === k ? scale : 0)) ** 2;
    const d = Math.sqrt(square);
    into[k] = d >= cutoff ? 0 : Math.exp(-beta * d);
  }
}

const HEADS = { softmax, radial };

// Mean over the samples, for each cell: Float32Array (cells, 3) of outputs (samples, cells, 6).
export function meanProbabilities(head, outputs, samples, cells, settings) {
  const found = new Float32Array(cells * CLASSES);
  const one = [0, 0, 0];
  for (let s = 0; s < samples; s++) {
    for (let i = 0; i < cells; i++) {
      HEADS[head](outputs, (s * cells + i) * WIDTH + AT[head], one, settings);
      for (let k = 0; k < CLASSES; k++) found[i * CLASSES + k] += one[k] / samples;
    }
  }
  return found;
}

// At one place: the mean over rows of outputs, and each row's winning probability.
export function atPlace(head, rows, settings) {
  const mean = [0, 0, 0];
  const one = [0, 0, 0];
  const winning = rows.map((row) => {
    HEADS[head](row, 0, one, settings);
    for (let k = 0; k < CLASSES; k++) mean[k] += one[k] / rows.length;
    return Math.max(...one);
  });
  const none = 1 - mean[0] - mean[1] - mean[2];
  return { mean, winning, none: none > 1e-9 ? none : 0 }; // softmax leaves nothing but a rounding error
}
