// The second tab: a drawing, or an example from the gallery, and what two classifiers say of it.

import { ask, find, later, latest, make, percent, rounded } from "./dom.js";
import { DOODLES } from "./doodles.js";
import { isUnknown, rateSlider } from "./rate.js";

const HEADS = ["softmax", "radial"];
const NAMES = { softmax: "Softmax", radial: "Radial" };
const SIDE = 28;
const PEN = 0.085; // of the sheet: about as thick as MNIST's pens
const CLOTHES = ["T-shirt", "trousers", "pullover", "dress", "sandal", "bag"];
const panel = find("#draw");
const sheet = find("#sheet");
const cards = Object.fromEntries(HEADS.map((head) => [head, find(`[data-head=${head}]`, panel)]));

let strokes = [];
let image = null; // an example of 28 x 28 pixels in place of strokes
let title = "The drawing";
let said = null;
let rate = () => 0.05;

export async function startDrawing() {
  rate = rateSlider(find("#draw-rate"), find("#draw-rate-value"), 0.05, () => (decide(), announce()));
  for (const head of HEADS) prepare(head);
  sheet.onpointerdown = press;
  sheet.onpointermove = drag;
  find("#undo").onclick = () => take(image ? [] : strokes.slice(0, -1));
  find("#clear").onclick = () => take([]);
  paint();
  doodles();
  const [facts] = await Promise.all([ask("/play/digits").then((response) => response.json()), tiles()]);
  const row = (head) => `${NAMES[head]} is right on ${percent(facts[head].accuracy)} of MNIST's test digits and calls ` +
    `${percent(facts[head].fashion_mnist_rejected)} of Fashion-MNIST's clothes unknown`;
  find("#draw-facts").textContent = `Measured at 5 %: ${row("softmax")}; ${row("radial").replace("Radial", "the radial layer")}.`;
}

function prepare(head) {
  const rows = Array.from({ length: 10 }, (_, digit) => {
    const track = make("div", { className: "track" }, make("div", { className: "fill" }));
    return make("li", {}, track, make("span", { textContent: digit }));
  });
  find(".columns", cards[head]).replaceChildren(...rows);
}

const readable = (canvas) => canvas.getContext("2d", { willReadFrequently: true });

const spot = (event) => {
  const box = sheet.getBoundingClientRect();
  return [(100 * (event.clientX - box.left)) / box.width, (100 * (event.clientY - box.top)) / box.height];
};

function press(event) {
  event.preventDefault();
  sheet.setPointerCapture(event.pointerId);
  take([...(image ? [] : strokes), [spot(event)]]);
}

function drag(event) {
  if (!event.buttons || !strokes.length) return;
  for (const each of event.getCoalescedEvents?.() ?? [event]) strokes.at(-1).push(spot(each));
  paint();
  consult();
}

function take(wanted, name = "The drawing") {
  [strokes, image, title] = [wanted, null, name];
  mark(name);
  paint();
  consult();
}

function paint() {
  const context = readable(sheet);
  context.fillStyle = "#000";
  context.fillRect(0, 0, sheet.width, sheet.height);
  if (image) {
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, sheet.width, sheet.height);
  } else {
    ink(context, sheet.width);
  }
}

function ink(context, size, drawn = strokes) {
  const at = ([x, y]) => [(x * size) / 100, (y * size) / 100];
  Object.assign(context, { fillStyle: "#fff", strokeStyle: "#fff", lineWidth: PEN * size, lineCap: "round", lineJoin: "round" });
  for (const stroke of drawn) {
    context.beginPath();
    context.arc(...at(stroke[0]), (PEN * size) / 2, 0, 2 * Math.PI); // a line of length zero leaves no ink in some browsers
    context.fill();
    context.beginPath();
    context.moveTo(...at(stroke[0]));
    for (const point of stroke.slice(1)) context.lineTo(...at(point));
    context.stroke();
  }
}

function greys(canvas) {
  const { data } = readable(canvas).getImageData(0, 0, canvas.width, canvas.height);
  return Uint8Array.from({ length: data.length / 4 }, (_, i) => data[4 * i]);
}

const consult = latest(async () => {
  const body = greys(image ?? sheet);
  if (!body.some((grey) => grey > 0)) {
    // There is no ink, so there is nothing to ask the server.
    said = null;
    decide();
    return;
  }
  const name = title;
  try {
    const options = { method: "POST", headers: { "Content-Type": "application/octet-stream" } };
    const response = await ask(`/play/digits?ready=${Boolean(image)}`, { ...options, body });
    said = { ...(await response.json()), name };
    decide();
    announce();
  } catch (error) {
    find("#draw-said").textContent = `No answer: ${error.message}.`;
  }
});

function decide() {
  see(said?.pixels);
  for (const head of HEADS) {
    const own = said?.[head];
    const verdict = find(".verdict", cards[head]);
    verdict.textContent = own ? sentence(own) : "–";
    verdict.toggleAttribute("data-unknown", Boolean(own) && isUnknown(own.p_value, rate()));
    find(".facts", cards[head]).replaceChildren(...(own ? facts(own) : []));
    [...find(".columns", cards[head]).children].forEach((row, digit) => {
      const share = own?.probabilities[digit] ?? 0;
      find(".fill", row).style.transform = `scaleY(${share})`;
      row.toggleAttribute("data-wins", own?.nearest === digit);
      row.setAttribute("aria-label", `${digit}: ${percent(share)}`);
    });
  }
}

const sentence = (own) => (isUnknown(own.p_value, rate()) ? "Unknown" : `It is a ${own.nearest}`);

function facts(own) {
  const pairs = [[`Probability of ${own.nearest}`, percent(own.probabilities[own.nearest])]];
  if (own.distances) pairs.push([`Distance to ${own.nearest}`, rounded(own.distances[own.nearest])]);
  pairs.push(["p-value", rounded(own.p_value)]);
  return pairs.map(([name, value]) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value })));
}

function see(pixels) {
  const context = find("#seen").getContext("2d");
  const shown = context.createImageData(SIDE, SIDE);
  for (let i = 0; i < SIDE * SIDE; i++) shown.data.set([...new Array(3).fill(pixels?.[i] ?? 0), 255], 4 * i);
  context.putImageData(shown, 0, 0);
}

const announce = later(() => {
  if (!said) return;
  const parts = HEADS.map((head) => {
    const own = said[head];
    const most = `${percent(own.probabilities[own.nearest])} for ${own.nearest}`;
    return isUnknown(own.p_value, rate()) ? `${NAMES[head]}: unknown (${most})` : `${NAMES[head]}: a ${own.nearest} (${most})`;
  });
  const name = said.name[0].toUpperCase() + said.name.slice(1);
  find("#draw-said").textContent = `${name}. ${parts.join(". ")}.`;
}, 350);

function example(shelf, name, draw, chosen) {
  const canvas = make("canvas", { width: 56, height: 56 });
  draw(canvas.getContext("2d"));
  const button = make("button", { type: "button", title: name, ariaLabel: name, ariaPressed: "false" }, canvas);
  button.onclick = chosen;
  find(`#${shelf}`).append(button);
}

function doodles() {
  for (const [name, drawn] of DOODLES) {
    example("novel", name, (context) => ink(context, 56, drawn), () => take(drawn.map((stroke) => [...stroke]), name));
  }
}

// The pictures of the gallery are one file: ten digits, then clothes, 28 x 28 pixels each.
async function tiles() {
  const all = make("img", { src: "/static/gallery.png" });
  await all.decode();
  const names = [...Array.from({ length: 10 }, (_, digit) => `digit ${digit}`), ...CLOTHES];
  names.forEach((name, place) => {
    const tile = make("canvas", { width: SIDE, height: SIDE });
    readable(tile).drawImage(all, -place * SIDE, 0);
    const show = (context) => context.drawImage(tile, 0, 0, 56, 56);
    example(place < 10 ? "known" : "novel", name, show, () => {
      [image, title] = [tile, name];
      mark(name);
      paint();
      consult();
    });
  });
}

function mark(name) {
  for (const button of panel.querySelectorAll(".gallery button")) button.ariaPressed = String(button.ariaLabel === name);
}
