// The third tab for a model of texts: type a sentence; see its nearest classes, its unknown score and known sentences.

import { ask, find, later, latest, make, percent, rounded } from "./dom.js";
import { isUnknown } from "./rate.js";

const PAUSE = 150; // milliseconds without a key before the model is asked
const json = (body) => ({ method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

let rate = () => 0.05;

// Returns a function to call when the rate has changed.
export function startSentences(currentRate) {
  rate = currentRate;
  find("#sentences").hidden = false;
  find("#sentence").oninput = later(question, PAUSE);
  return later(question, PAUSE);
}

const question = latest(async () => {
  const text = find("#sentence").value;
  if (!text.trim()) return clear();
  try {
    const [predicted, about] = await Promise.all([
      ask("/v1/predict", json({ inputs: [text] })),
      ask("/play/sentence", json({ text, rate: rate() })),
    ]);
    show((await predicted.json()).predictions[0], await about.json());
  } catch (error) {
    clear(error.message);
  }
});

function clear(message = "") {
  find("#sentence-verdict").textContent = message && "Not read";
  find("#sentence-facts").textContent = message;
  find("#sentence-classes").replaceChildren();
  find("#sentence-nearest").replaceChildren();
  find("#sentence-score").hidden = true;
  find("#model-said").textContent = message;
}

function show(said, { threshold, nearest }) {
  const unknown = isUnknown(said.p_value, rate());
  const verdict = find("#sentence-verdict");
  verdict.textContent = unknown ? "Unknown" : said.nearest;
  verdict.toggleAttribute("data-unknown", unknown);
  showScore(said, threshold);
  find("#sentence-classes").replaceChildren(...said.top.map(bar));
  find("#sentence-nearest").replaceChildren(...nearest.map(known));
  find("#sentence-note").textContent = nearest.length
    ? "Of the data that the playground was started with, by the cosine of their features."
    : "Start the playground with --data and the training data to see them. A model does not keep its training sentences.";
  find("#model-said").textContent = `${verdict.textContent}; ${find("#sentence-facts").textContent}.`;
}

// A bar from the lowest of both numbers and zero to twice the threshold, with a mark at the threshold.
function showScore(said, threshold) {
  const score = said.unknown_score;
  const facts = `unknown score ${signed(score)}, threshold ${signed(threshold)} at ${percent(rate())}, p-value ${rounded(said.p_value)}`;
  find("#sentence-facts").textContent = facts;
  const line = find("#sentence-score");
  line.hidden = threshold === null || score === null;
  if (line.hidden) return;
  const low = Math.min(0, score, threshold);
  const high = Math.max(score, threshold + Math.abs(threshold), low + 1e-9);
  line.style.setProperty("--score", `${(100 * (score - low)) / (high - low)}%`);
  line.style.setProperty("--limit", `${(100 * (threshold - low)) / (high - low)}%`);
  line.setAttribute("aria-label", facts);
}

const signed = (value) => (value === null ? "–" : (value < 0 ? "−" : "") + rounded(Math.abs(value)));

function bar({ class: name, probability }, place) {
  const fill = make("div", { className: "fill" });
  fill.style.transform = `scaleX(${probability})`;
  const parts = [
    make("span", { className: "class", textContent: name }),
    make("div", { className: "track" }, fill),
    make("span", { className: "number", textContent: percent(probability) }),
  ];
  const entry = make("li", {}, ...parts);
  entry.toggleAttribute("data-wins", place === 0);
  return entry;
}

function known({ text, class: name, similarity }) {
  const facts = make("small", { textContent: name });
  return make("li", {}, make("span", { textContent: text || "(empty)" }), make("span", { textContent: rounded(similarity) }), facts);
}
