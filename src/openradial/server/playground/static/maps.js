// Drawing: the map of a head with data and cross, and the distribution at the cross.

import { CLASSES } from "./heads.js";
import { colour, fitted, rgb } from "./dom.js";

export const MARKS = ["●", "■", "▲"];

// Winner's colour, as strong as its probability: no class is no colour.
function image(probabilities, cells) {
  const canvas = new OffscreenCanvas(cells, cells);
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(cells, cells);
  const colours = [0, 1, 2].map((k) => rgb(`--arm-${k}`));
  for (let i = 0; i < cells * cells; i++) {
    let winner = 0;
    for (let k = 1; k < CLASSES; k++) if (probabilities[i * CLASSES + k] > probabilities[i * CLASSES + winner]) winner = k;
    const row = cells - 1 - Math.floor(i / cells); // the grid begins at the bottom
    const at = 4 * (row * cells + (i % cells));
    pixels.data.set(colours[winner], at);
    pixels.data[at + 3] = 220 * probabilities[i * CLASSES + winner];
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

export function drawMap(canvas, probabilities, run, cross) {
  const { context, width } = fitted(canvas);
  const [left, right, bottom, top] = run.extent;
  const place = ([x, y]) => [((x - left) / (right - left)) * width, ((top - y) / (top - bottom)) * width];
  if (probabilities) {
    context.imageSmoothingQuality = "high";
    context.drawImage(image(probabilities, run.cells), 0, 0, width, width);
  }
  drawPoints(context, run, place, width);
  drawCross(context, place([cross.x, cross.y]), width);
}

function drawPoints(context, run, place, width) {
  const size = Math.max(1.4, width / 210);
  const paths = [0, 1, 2].map(() => new Path2D());
  const step = width < 250 ? 2 : 1; // on a small map each second one is enough
  run.points.forEach((point, i) => {
    if (i % step) return;
    const [x, y] = place(point);
    const path = paths[run.labels[i]];
    if (run.labels[i] === 0) path.moveTo(x + size, y), path.arc(x, y, size, 0, 7);
    else if (run.labels[i] === 1) path.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
    else path.moveTo(x, y - size * 1.2), path.lineTo(x + size * 1.1, y + size), path.lineTo(x - size * 1.1, y + size), path.closePath();
  });
  paths.forEach((path, k) => {
    context.lineWidth = 1.1;
    context.strokeStyle = colour("--card");
    context.stroke(path);
    context.fillStyle = colour(`--arm-${k}`);
    context.fill(path);
  });
}

function drawCross(context, [x, y], width) {
  const arm = Math.max(6, width / 45);
  for (const [line, ink] of [[5, colour("--card")], [2, colour("--ink")]]) {
    context.lineWidth = line;
    context.strokeStyle = ink;
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(x - arm, y), context.lineTo(x + arm, y);
    context.moveTo(x, y - arm), context.lineTo(x, y + arm);
    context.stroke();
  }
}

export const BINS = 20;

export function counts(values) {
  const found = new Array(BINS).fill(0);
  for (const value of values) found[Math.min(BINS - 1, Math.floor(value * BINS))]++;
  return found;
}

export function drawHistogram(canvas, values) {
  const { context, width, height } = fitted(canvas);
  const floor = height - 16;
  const bins = counts(values);
  const most = Math.max(...bins, 1);
  context.fillStyle = colour("--accent");
  bins.forEach((count, i) => {
    const tall = (count / most) * (floor - 2);
    context.fillRect((i / BINS) * width + 1, floor - tall, width / BINS - 2, tall);
  });
  context.fillStyle = colour("--line");
  context.fillRect(0, floor, width, 1);
  context.fillStyle = colour("--soft");
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "bottom";
  context.fillText("0", 0, height);
  context.textAlign = "center";
  context.fillText("winning probability", width / 2, height);
  context.textAlign = "right";
  context.fillText("1", width, height);
}
