// Look into it: classes taken for each other, possible wrong labels and duplicates, as queues to work through.

import { changed, go, read } from "./address.js";
import { askPatiently, post, Trouble } from "./api.js";
import { counted, element, labelOf, nameOf, notice, percent, picture, say, similarityText } from "./elements.js";

const PAGE = 20;
const QUEUES = {
  confused: ["Confused classes", "Two classes whose items lie nearest to each other. Either they look alike, or some labels are wrong."],
  mislabelled: ["Possible wrong labels", "Items that lie among another class than the one they are labelled with, the most suspicious first."],
  duplicates: ["Duplicates", "Items that are the same, or nearly; those with different labels first."],
};
let visit = 0;

const itemLink = (item, note) =>
  element("figure", { class: "small" },
    element("a", { href: changed({ view: "search", item: item.id, upload: null, from: 0 }), "aria-label": `Search from ${labelOf(item)}, ${nameOf(item)}` }, picture(item, 192, "")),
    element("figcaption", {}, note ?? labelOf(item)));

function confused(entry) {
  const total = entry.first_as_second + entry.second_as_first;
  return element("article", { class: "case" },
    element("header", {},
      element("h3", {}, labelOf({ label: entry.first }), " and ", labelOf({ label: entry.second })),
      element("p", { class: "hint" }, `${counted(total, "item")} of ${entry.items} (${percent(entry.share)}) lie nearest to the other class: ${entry.first_as_second} of the first, ${entry.second_as_first} of the second.`)),
    element("ul", { class: "pairs" }, entry.examples.map((pair) =>
      element("li", {}, itemLink(pair.item), itemLink(pair.nearest), element("span", { class: "similarity" }, similarityText(pair.similarity))))));
}

// One decision on one item: it is written to review.csv beside the index, and can be changed at any time.
function decisions(item, queue, labels, proposed, made) {
  const status = element("p", { class: "decided", role: "status" });
  const wrong = element("p", { class: "wrong", role: "alert", hidden: true });
  const other = element("input", { type: "text", list: "all-labels", "aria-label": `New label of ${nameOf(item)}`, placeholder: "another label", autocomplete: "off" });
  if (proposed !== null && proposed !== undefined) other.value = String(proposed);
  const buttons = {};
  const shown = (review) => {
    item.review = review;
    for (const [name, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(review?.decision === name));
    status.textContent = !review ? "" : review.decision === "relabel" ? `to be relabelled: ${review.new_label}` : review.decision === "keep" ? "kept as it is" : "to be removed";
  };
  const decide = async (decision) => {
    wrong.hidden = true;
    try {
      const review = await post("/review", { item: item.id, decision, new_label: decision === "relabel" ? other.value : "", queue });
      const first = !item.review;
      shown(review);
      made(first);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
  };
  for (const [name, words] of [["keep", "Keep"], ["relabel", "Relabel"], ["remove", "Remove"]]) {
    buttons[name] = element("button", { type: "button", "aria-pressed": "false", "data-decision": name, onclick: () => decide(name) }, words);
  }
  shown(item.review);
  return element("div", { class: "decisions" }, buttons.keep,
    labels ? [element("span", { class: "joined" }, buttons.relabel, other)] : null, buttons.remove, status, wrong);
}

// A case is settled when of its items no more than some wait for a decision: it is marked, and can be passed over.
function settling(items, spare, made) {
  const article = element("article", { class: "case", tabindex: "-1" });
  const mark = () => article.classList.toggle("settled", items.filter((item) => !item.review).length <= spare);
  mark();
  return [article, (first) => { mark(); made(first); }];
}

function mislabelled(entry, made) {
  const { item } = entry;
  const [article, decided] = settling([item], 0, made);
  article.classList.add("suspect");
  article.dataset.id = String(item.id);
  const strip = (title, items) => items.length ? element("div", {}, element("h4", {}, title), element("div", { class: "strip" }, items.map((one) => itemLink(one, "")))) : null;
  article.append(
    element("div", { class: "suspect-item" }, itemLink(item, nameOf(item))),
    element("div", { class: "suspect-words" },
      element("header", {},
        element("h3", {}, "Labelled ", element("mark", {}, labelOf(item)), ", perhaps ", element("mark", { class: "proposed" }, labelOf({ label: entry.proposed }))),
        element("p", { class: "hint" }, `Wrong with a probability of ${percent(entry.score)}, by its neighbours.`)),
      element("div", { class: "strips" }, strip(`Nearest ${labelOf(item)}`, entry.own), strip(`Nearest ${labelOf({ label: entry.proposed })}`, entry.other)),
      decisions(item, "mislabelled", true, entry.proposed, decided)));
  return article;
}

function duplicates(entry, made) {
  const why = { bytes: "the same file", looks: "the same picture", embedding: "nearly the same" };
  const many = counted(entry.items.length + entry.more, "item");
  const [article, decided] = settling(entry.items, 1 - entry.more, made); // one of several may stay without a word
  article.append(
    element("header", {},
      element("h3", {}, entry.labels.length > 1 ? `${many} with different labels` : `${many} of ${labelOf({ label: entry.labels[0] })}`),
      element("p", { class: "hint" }, `${entry.kinds.map((kind) => why[kind] ?? kind).join(", ")}; similarity at least ${similarityText(entry.similarity)}`)),
    element("ul", { class: "group" }, entry.items.map((item) =>
      element("li", { "data-id": String(item.id) }, itemLink(item, [labelOf(item), element("br"), element("span", { class: "hint" }, nameOf(item))]), decisions(item, "duplicates", false, null, decided)))),
    ...(entry.more > 0 ? [element("p", { class: "hint" }, `and ${counted(entry.more, "more item")}`)] : []));
  return article;
}

const DRAWN = { confused, mislabelled, duplicates };
const NOTHING = {
  confused: ["Nothing is confused", "Every item that has a label lies nearest to one with the same label."],
  mislabelled: ["No label looks wrong", "Every item lies among items of its own label."],
  duplicates: ["No duplicates", "No two items are as near as this."],
};

function tabs(queue) {
  return element("nav", { class: "tabs", "aria-label": "Queues" }, Object.entries(QUEUES).map(([name, [title]]) =>
    element("a", { href: changed({ queue: name, from: 0 }), "aria-current": name === queue ? "page" : null }, title)));
}

// A phone shows two tabs of three. (scrollIntoView would have Tab go on from here, and not from the top of the page.)
function showTab(tab) {
  const row = tab.parentElement;
  row.scrollLeft = tab.offsetLeft + tab.offsetWidth - row.offsetLeft - row.clientWidth;
}

// How near two items must be to count as one.
function thresholdForm(state, info) {
  const value = element("input", { id: "threshold", type: "text", inputmode: "decimal", value: state.threshold ?? (info.distance === "cosine" ? "0.98" : ""), placeholder: "minus a distance", autocomplete: "off" });
  return element("form", { class: "settings", onsubmit: (event) => {
    event.preventDefault();
    go({ threshold: value.value.trim() === "" ? null : Number(value.value), from: 0 });
  } }, element("label", { for: "threshold" }, "Nearer than a similarity of ", value), element("button", { type: "submit" }, "Look again"));
}

// To the next case that waits for a decision: on this page, or on a later one.
function undecidedButton(body, beyond) {
  let seen = -1;
  return element("button", { type: "button", id: "next-undecided", onclick: () => {
    const cases = [...body.querySelectorAll(".case")];
    const next = cases.findIndex((article, place) => place > seen && !article.classList.contains("settled"));
    if (next >= 0) {
      seen = next;
      cases[next].scrollIntoView({ block: "center" });
      cases[next].focus();
    } else if (beyond !== null) go({ from: beyond });
    else {
      seen = -1;
      say("No case from here on waits for a decision.");
    }
  } }, "Next undecided");
}

export async function showInspect(main, info) {
  const mine = (visit += 1);
  const state = read();
  const { queue } = state;
  const alive = () => mine === visit && read().view === "inspect";
  const [title, sentence] = QUEUES[queue];
  document.title = `${title} · ${info.name}`;
  const body = element("div", { class: `cases ${queue}` }, element("p", { class: "waiting" }, "Looking …"));
  const tally = element("p", { class: "hint", id: "tally" });
  main.replaceChildren(element("section", { class: "inspecting" }, element("h1", {}, "Look into it"), tabs(queue),
    element("div", { class: "toolbar" }, element("p", { class: "lead" }, sentence), tally), body));
  showTab(main.querySelector(".tabs [aria-current]"));
  const wait = (words) => body.replaceChildren(element("p", { class: "waiting", role: "status" }, words));
  const reply = await askPatiently(`/inspect/${queue}`, { from: state.from, limit: PAGE, threshold: queue === "duplicates" ? state.threshold : null }, wait, alive);
  if (!reply || !alive()) return;
  if (reply.refused) {
    body.replaceChildren(notice("Not here", reply.refused));
    return;
  }
  let reviewed = reply.reviewed ?? 0;
  const count = () => {
    if (queue === "confused") return;
    tally.replaceChildren(`${counted(reviewed, "decision")} in `, element("a", { href: "/review.csv", download: "review.csv" }, "review.csv"), "; no photograph is touched");
  };
  count();
  const made = (first) => { if (first) reviewed += 1; count(); }; // another decision on an item takes the place of the former
  if (!reply.count) {
    body.replaceChildren(queue === "duplicates" ? thresholdForm(state, info) : "", notice(...NOTHING[queue]));
    return;
  }
  const last = state.from + reply.entries.length;
  body.replaceChildren(
    queue === "duplicates" ? thresholdForm(state, info) : "",
    element("p", { class: "hint" }, `${state.from + 1} to ${last} of ${counted(reply.count, "case")}${reply.asked ? `, from ${counted(reply.asked, "item")} drawn at random` : ""}`),
    queue === "confused" ? "" : undecidedButton(body, reply.next_undecided),
    element("datalist", { id: "all-labels" }, info.labels.map((label) => element("option", { value: String(label) }))),
    ...reply.entries.map((entry) => DRAWN[queue](entry, made)),
    element("nav", { class: "pages", "aria-label": "Pages" },
      state.from > 0 && element("a", { class: "button", href: changed({ from: Math.max(0, state.from - PAGE) }) }, "Earlier"),
      last < reply.count && element("a", { class: "button", href: changed({ from: last }) }, "Next")));
}
