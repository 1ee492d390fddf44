// Filters by label and metadata: one chip per condition, in the filter language of the index.

import { go, read } from "./address.js";
import { element } from "./elements.js";

const SIGNS = [["=", "is"], ["!=", "is not"], [">=", "at least"], ["<=", "at most"], ["is null", "is missing"], ["is not null", "is present"]];
const ORDERED = [">=", "<="];

const column = (name) => (/^[A-Za-z_]\w*$/.test(name) && !/^(and|or|not|in|is|null|true|false)$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`);
const text = (value) => `'${String(value).replaceAll("'", "''")}'`;

function condition(name, sign, value, kind) {
  if (sign.startsWith("is ")) return `${column(name)} ${sign}`;
  if (kind === "boolean") return `${column(name)} ${sign} ${value === "true"}`;
  if (kind === "integer" || kind === "number") {
    const number = Number(value);
    if (String(value).trim() === "" || !Number.isFinite(number)) throw new Error(`${name} must be a number; got ${value || "nothing"}.`);
    return `${column(name)} ${sign} ${number}`;
  }
  return `${column(name)} ${sign} ${text(value)}`;
}

export function filterPanel(info) {
  const state = read();
  const hidden = ["source", "stamp", "hash"];
  const columns = Object.entries(info.columns).filter(([name, kind]) => !hidden.includes(name) && (kind || name === "label"));
  const chips = element("ul", { class: "chips", "aria-label": "Active filters", hidden: !state.where.length },
    state.where.map((words, place) =>
      element("li", {}, element("span", {}, words),
        element("button", {
          type: "button", "aria-label": `Remove filter ${words}`,
          onclick: () => go({ where: state.where.filter((_, other) => other !== place), from: 0 }),
        }, "×")),
    ));
  const name = element("select", { id: "filter-column" }, columns.map(([word]) => element("option", { value: word }, word)));
  if (columns.some(([word]) => word === "label")) name.value = "label";
  const sign = element("select", { id: "filter-sign", "aria-label": "Comparison" });
  const value = element("input", { id: "filter-value", type: "text", autocomplete: "off", "aria-label": "Value" });
  const choices = element("datalist", { id: "filter-choices" }, info.labels.map((label) => element("option", { value: String(label) })));
  const wrong = element("p", { class: "wrong", role: "alert", hidden: true });
  const kindOf = () => info.columns[name.value] ?? "text";
  const adapt = () => {
    const numbers = ["integer", "number"].includes(kindOf());
    sign.replaceChildren(...SIGNS.filter(([mark]) => !ORDERED.includes(mark) || numbers || (kindOf() === "text" && name.value !== "label"))
      .map(([mark, words]) => element("option", { value: mark }, words)));
    value.toggleAttribute("list", false);
    if (name.value === "label") value.setAttribute("list", "filter-choices");
    else if (kindOf() === "boolean") value.value = "true";
    value.inputMode = numbers ? "decimal" : "text";
    value.placeholder = name.value === "label" ? "a label" : numbers ? "a number" : kindOf() === "boolean" ? "true or false" : "a value";
  };
  name.addEventListener("change", () => { value.value = ""; adapt(); });
  sign.addEventListener("change", () => { value.hidden = sign.value.startsWith("is "); });
  adapt();
  const form = element("form", {
    class: "filter-form",
    onsubmit: (event) => {
      event.preventDefault();
      try {
        const added = condition(name.value, sign.value, value.value, kindOf());
        if (!state.where.includes(added)) go({ where: [...state.where, added], from: 0 });
      } catch (error) {
        wrong.textContent = error.message;
        wrong.hidden = false;
      }
    },
  }, element("label", { for: "filter-column", class: "spoken" }, "Column"), name, sign, value, choices,
  element("button", { type: "submit", class: "quiet" }, "Add"), wrong);
  // On a narrow screen the results come first.
  const open = state.where.length > 0 || !matchMedia("(max-width: 60rem)").matches;
  return element("details", { class: "filters", open }, element("summary", {}, "Filter"), chips, form);
}
