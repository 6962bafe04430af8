// The first tab: two networks learn live; sliders, cross and scrubbing.

import { ask, find, later, latest, make, percent, rounded } from "./dom.js";
import { atPlace, halves, meanProbabilities } from "./heads.js";
import { MARKS, drawHistogram, drawMap } from "./maps.js";

const HEADS = ["softmax", "radial"];
const NAMES = { softmax: "Softmax", radial: "The radial layer" };
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const panel = find("#spiral");
const cards = Object.fromEntries(HEADS.map((head) => [head, find(`[data-head=${head}]`, panel)]));
const control = (name) => find(`#${name}`, panel);

const cross = { x: 2, y: 2 };
const pictures = new Map(); // outputs of the last frames that were shown
const KEPT = 60;
let run = null;
let wishes = null;
let stream = null;
let accuracy = [];
let frame = 0;
let following = true;
let paused = false;
let ended = false;
let playing = 0; // the timer of a replay
let seed = 0;
let outputs = null;
let place = null;

const beta = () => (wishes?.bayesian ? wishes.beta : 0.5 * 100 ** (control("beta").value / 100));
const apart = () => Math.SQRT2 * (wishes?.scale ?? 1);
const cutoff = () => (control("cutoff").value > 100 ? Infinity : (control("cutoff").value / 100) * apart());
const settings = () => ({ beta: beta(), scale: wishes.scale, cutoff: cutoff() });

export function startSpiral() {
  for (const head of HEADS) prepare(head);
  control("go").onclick = () => (ended ? replay() : hold(!paused));
  control("again").onclick = () => ((seed += 1), begin());
  control("progress").oninput = scrub;
  control("beta").oninput = () => (wishes?.bayesian ? label() : react());
  control("beta").onchange = () => wishes?.bayesian && begin();
  control("cutoff").oninput = react;
  for (const name of ["noise", "scale"]) {
    control(name).oninput = label;
    control(name).onchange = begin;
  }
  control("bayesian").onchange = begin;
  addEventListener("pagehide", leave);
  addEventListener("resize", later(redraw, 100));
  document.addEventListener("theme", redraw);
  document.addEventListener("tab", redraw);
  begin();
}

function prepare(head) {
  const rows = [0, 1, 2, "none"].map((k) => {
    const mark = make("span", { className: "mark", ariaHidden: "true", textContent: MARKS[k] ?? "○" });
    const name = make("span", { className: "class" }, mark, k === "none" ? "no class" : `arm ${k + 1}`);
    const fill = make("div", { className: "fill" });
    const row = make("li", {}, name, make("div", { className: "track" }, fill), make("span", { className: "number" }));
    if (k === "none") row.dataset.none = "";
    else row.style.setProperty("--colour", `var(--arm-${k})`);
    return row;
  });
  find(".bars", cards[head]).replaceChildren(...rows);
  const map = find(".map", cards[head]);
  map.onpointerdown = (event) => {
    if (!run) return;
    const box = map.getBoundingClientRect();
    const [left, right, bottom, top] = run.extent;
    const [across, down] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    move(left + across * (right - left), top - down * (top - bottom));
  };
  map.onpointermove = (event) => event.buttons && event.pointerType === "mouse" && map.onpointerdown(event);
  map.onkeydown = steer;
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function steer(event) {
  const step = STEPS[event.key];
  if (!step && event.key !== "Home") return;
  event.preventDefault();
  const far = event.shiftKey ? 0.5 : 0.1;
  if (step) move(cross.x + far * step[0], cross.y + far * step[1]);
  else move(0, 0);
}

function move(x, y) {
  if (!run) return;
  const [left, right, bottom, top] = run.extent;
  const inside = (value, low, high) => Math.min(high, Math.max(low, Math.round(value * 100) / 100));
  [cross.x, cross.y] = [inside(x, left, right), inside(y, bottom, top)];
  redraw();
  look();
  announce();
}

async function begin() {
  leave();
  wishes = {
    label_noise: control("noise").value / 100,
    scale: Number(control("scale").value),
    beta: Number((0.5 * 100 ** (control("beta").value / 100)).toPrecision(4)),
    bayesian: control("bayesian").checked,
    seed,
  };
  label();
  const own = wishes;
  try {
    const body = JSON.stringify(own);
    const response = await ask("/play/spiral", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    const described = await response.json();
    if (own === wishes) open(described);
    else drop(described); // another was asked for meanwhile
  } catch (error) {
    control("training-said").textContent = `Training cannot start: ${error.message}.`;
  }
}

function open(described) {
  run = { ...described, asking: new AbortController() };
  pictures.clear();
  [accuracy, frame, following, paused, ended, outputs, place] = [[], 0, true, false, false, null, null];
  control("progress").max = run.frames - 1;
  stream = new EventSource(`/play/spiral/${run.id}/events`);
  stream.addEventListener("frame", (event) => arrive(JSON.parse(event.data)));
  stream.addEventListener("end", (event) => finish(JSON.parse(event.data).problem));
  stream.onerror = () => stream?.readyState === EventSource.CLOSED && finish("The run is gone; start again");
  for (const head of HEADS) find(".spread", cards[head]).hidden = !wishes.bayesian;
  panel.dataset.state = "training";
  label();
}

function leave() {
  clearInterval(playing);
  playing = 0;
  stream?.close();
  stream = null;
  run?.asking.abort(); // what is asked of a run that is gone would be an error
  if (run) drop(run);
  run = null;
}

function drop({ id }) {
  fetch(`/play/spiral/${id}`, { method: "DELETE", keepalive: true }).catch(() => {});
}

function arrive(facts) {
  accuracy[facts.frame] = facts.accuracy;
  const newest = facts.frame === accuracy.length - 1;
  if (following && newest && (!calm.matches || facts.frame % 10 === 0)) show(facts.frame);
  label();
}

function finish(problem) {
  stream?.close();
  stream = null;
  ended = true;
  panel.dataset.state = "ended";
  if (following && accuracy.length) show(accuracy.length - 1);
  label();
  if (problem) control("training-said").textContent = `${problem}.`;
  announce();
}

async function hold(wanted) {
  paused = wanted;
  panel.dataset.state = paused ? "paused" : "training";
  if (!paused) following = true;
  label();
  await ask(`/play/spiral/${run.id}/${paused ? "pause" : "resume"}`, { method: "POST" }).catch((error) => finish(error.message));
}

// From the first frame to the last, as it was.
function replay() {
  const isOver = frame >= accuracy.length - 1;
  clearInterval(playing);
  if (playing && !isOver) {
    playing = 0;
    return label();
  }
  if (isOver) show(0);
  playing = setInterval(() => {
    if (frame < accuracy.length - 1) return show(frame + 1);
    clearInterval(playing);
    playing = 0;
    label();
    announce();
  }, calm.matches ? 1000 : 70);
  label();
}

function scrub() {
  clearInterval(playing);
  playing = 0;
  const wanted = Math.min(Number(control("progress").value), accuracy.length - 1);
  following = wanted === accuracy.length - 1 && !ended;
  show(wanted);
  announce();
}

function show(wanted) {
  frame = wanted;
  label();
  load(wanted);
  look();
}

const load = latest(async (wanted) => {
  const own = run;
  if (!own) return;
  try {
    if (!pictures.has(wanted)) {
      const response = await ask(`/play/spiral/${own.id}/frames/${wanted}`, { signal: own.asking.signal });
      pictures.set(wanted, halves(await response.arrayBuffer()));
      if (pictures.size > KEPT) pictures.delete(pictures.keys().next().value);
    }
  } catch {
    return; // the run was left meanwhile, and another picture is on its way
  }
  if (own !== run) return;
  outputs = pictures.get(wanted);
  redraw();
});

const look = latest(async () => {
  const own = run;
  if (!own) return;
  try {
    const where = `frame=${frame}&x=${cross.x}&y=${cross.y}`;
    const response = await ask(`/play/spiral/${own.id}/at?${where}`, { signal: own.asking.signal });
    const found = await response.json();
    if (own !== run) return;
    place = found;
    read();
  } catch {
    // as above
  }
});

function react() {
  label();
  redraw();
  read();
  announce();
}

function redraw() {
  if (!run || panel.hidden) return;
  const cells = run.cells ** 2;
  for (const head of HEADS) {
    const map = outputs && meanProbabilities(head, outputs, run.samples, cells, settings());
    drawMap(find(".map", cards[head]), map, run, cross);
  }
  read();
}

function read() {
  if (!place || panel.hidden) return;
  for (const head of HEADS) {
    const found = atPlace(head, place[head], settings());
    const values = [...found.mean, found.none];
    const wins = values.indexOf(Math.max(...values));
    [...find(".bars", cards[head]).children].forEach((row, k) => {
      find(".fill", row).style.transform = `scaleX(${Math.min(1, values[k])})`;
      find(".number", row).textContent = percent(values[k]);
      row.toggleAttribute("data-wins", k === wins);
    });
    if (wishes.bayesian) spread(head, found.winning);
  }
}

function spread(head, winning) {
  const canvas = find(".histogram", cards[head]);
  const sorted = [...winning].sort((a, b) => a - b);
  const at = (share) => percent(sorted[Math.floor(share * (sorted.length - 1))]);
  const middle = at(0.25) === at(0.75) ? `near ${at(0.5)}` : `between ${at(0.25)} and ${at(0.75)}`;
  const text = `${winning.length} networks drawn: half of them ${middle}`;
  drawHistogram(canvas, winning);
  canvas.setAttribute("aria-label", `Distribution of the winning probability of ${head}. ${text}.`);
  find("figcaption", cards[head]).textContent = text;
}

const announce = later(() => {
  if (!place || !run) return;
  const sentences = HEADS.map((head) => {
    const { mean, none } = atPlace(head, place[head], settings());
    const best = mean.indexOf(Math.max(...mean));
    return none > mean[best]
      ? `${NAMES[head]} says no class (${percent(none)}); the nearest is arm ${best + 1} with ${percent(mean[best])}.`
      : `${NAMES[head]} says arm ${best + 1} with ${percent(mean[best])}.`;
  });
  control("cross-said").textContent = `At ${cross.x.toFixed(1)}, ${cross.y.toFixed(1)}: ${sentences.join(" ")}`;
}, 350);

function label() {
  const put = (name, text) => {
    control(`${name}-value`).textContent = text;
    control(name).setAttribute("aria-valuetext", text);
  };
  const own = 0.5 * 100 ** (control("beta").value / 100);
  put("beta", own.toPrecision(2));
  put("cutoff", cutoff() === Infinity ? "off" : `${rounded(cutoff())}${cutoff() <= apart() / 2 ? ", balls apart" : ""}`);
  put("noise", percent(control("noise").value / 100));
  put("scale", Number(control("scale").value).toFixed(1));
  control("beta-note").textContent = control("bayesian").checked
    ? "For Bayesian networks beta weighs the data against the prior: moving it starts them again."
    : "The networks stay as they are: only what is read from their outputs changes.";
  control("go").textContent = ended ? (playing ? "Stop" : "Replay") : paused ? "Continue" : "Pause";
  if (!run) return;
  control("progress").value = frame;
  put("progress", `step ${frame * run.steps} of ${(run.frames - 1) * run.steps}`);
  const found = accuracy[frame];
  control("training-said").textContent = found
    ? `Right on new points: softmax ${percent(found.softmax)}, radial ${percent(found.radial)}.`
    : "Starting …";
}
