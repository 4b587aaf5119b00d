// Draws the picture that the server sends: whole at first, then as JSON Merge Patches (RFC 7396).
const ROWS_MAX = 100;
const dark = matchMedia("(prefers-color-scheme: dark)");
const $ = id => document.getElementById(id);
let picture = null;
let due = false;

function merge(target, patch) {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const found = typeof target === "object" && target !== null && !Array.isArray(target) ? target : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete found[key];
    else found[key] = merge(found[key], value);
  }
  return found;
}

const number = value => value.toLocaleString("en");
const time = ms => ms > 0 ? new Date(ms).toISOString().slice(11, 19) : "";
const ids = list => list.join(", ") || "none";
const seconds = (then, now) => then > 0 ? number(Math.max(0, Math.round((now - then) / 1000))) : "never";

// Columns: heading, kind (number, words or none), text of a row; a row's class is the last entry.
const TABLES = {
  replicas: {columns: [["Node", "number", r => r.id], ["Role", "", r => r.role],
    ["Log end", "number", r => number(r.logEndOffset)], ["Lag", "number", r => number(r.lag)],
    ["Fetched, s ago", "number", r => seconds(r.lastFetchMs, picture.quorum.toldMs)],
    ["Caught up, s ago", "number", r => seconds(r.lastCaughtUpMs, picture.quorum.toldMs)],
    ["Directory", "words", r => r.directoryId]],
    order: (a, b) => (a.role === "observer") - (b.role === "observer") || a.id - b.id,
    look: r => r.isSilent ? "bad" : r.role === "leader" ? "good" : ""},
  controllers: {columns: [["Node", "number", r => r.id < 0 ? "?" : r.id], ["Address", "words", r => r.address],
    ["It", "words", r => r.says + (r.text ? ": " + r.text : "")], ["Since (UTC)", "number", r => time(r.sinceMs)],
    ["Votes", "", r => r.isVoter ? "yes" : "no"]],
    order: (a, b) => a.id - b.id, look: r => r.says === "leads" ? "good" : r.says === "answers" ? "" : "warn"},
  brokers: {columns: [["Broker", "number", r => r.id], ["State", "", r => r.state],
    ["Leads partitions", "number", r => number(r.leads)], ["Epoch", "number", r => r.epoch], ["Rack", "", r => r.rack],
    ["Listeners", "words", r => r.listeners]],
    order: (a, b) => (a.state === "active") - (b.state === "active") || a.id - b.id,
    look: r => r.state === "active" ? "" : "warn"},
  troubled: {columns: [["Partition", "words", r => r.name], ["Trouble", "words", r => r.kinds.join(", ") || "none"],
    ["Since (UTC)", "number", r => time(r.sinceMs)], ["Leader", "number", r => r.leader < 0 ? "none" : r.leader],
    ["ISR", "", r => ids(r.isr)], ["Replicas", "", r => ids(r.replicas)], ["ELR", "", r => ids(r.elr)],
    ["Min ISR", "number", r => r.minIsr], ["What helps", "words", r => r.helps]],
    order: (a, b) => b.kinds.includes("offline") - a.kinds.includes("offline")
      || b.kinds.includes("under min ISR") - a.kinds.includes("under min ISR") || a.sinceMs - b.sinceMs,
    look: r => r.leader < 0 ? "bad" : r.kinds.length ? "warn" : ""},
  groups: {columns: [["Group", "words", r => r.name], ["State", "", r => r.state],
    ["Lag, records", "number", r => r.lag < 0 ? "?" : number(r.lag)], ["Partitions", "number", r => number(r.partitions)],
    ["Furthest behind in", "words", r => r.problem || r.worst]],
    order: (a, b) => b.lag - a.lag, look: () => ""},
  events: {columns: [["Time", "number", r => time(r.atMs)], ["Offset", "number", r => number(r.offset)],
    ["Event", "words", r => r.text], ["Record", "words", r => r.type]],
    order: (a, b) => b.number - a.number, look: r => r.isBad ? "bad" : "", max: 300},
};
TABLES.found = {...TABLES.troubled, order: () => 0, max: 200};
const shown = {};

function prepare(name) {
  const table = $(name), head = table.createTHead().insertRow();
  for (const [heading, kind] of TABLES[name].columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.className = kind;
    cell.textContent = heading;
    head.append(cell);
  }
  shown[name] = {body: table.createTBody(), rows: new Map()};
}

// Rows that stay are kept, and only cells that differ are written.
function draw(name, items) {
  const {columns, order, look, max = ROWS_MAX} = TABLES[name], {body, rows} = shown[name];
  const sorted = Object.entries(items).sort(([, a], [, b]) => order(a, b)).slice(0, max);
  const wanted = new Set(sorted.map(([key]) => key));
  for (const [key, row] of rows) if (!wanted.has(key)) { row.remove(); rows.delete(key); }
  let place = body.firstElementChild;
  for (const [key, item] of sorted) {
    let row = rows.get(key);
    if (!row) {
      row = document.createElement("tr");
      if (rows.size) row.classList.add("new");
      for (const [, kind] of columns) { const cell = row.insertCell(); cell.className = kind; }
      rows.set(key, row);
    }
    if (row !== place) body.insertBefore(row, place); else place = place.nextElementSibling;
    const kind = look(item);
    columns.forEach(([, , text], at) => {
      const cell = row.cells[at], value = String(text(item));
      if (cell.textContent !== value) cell.textContent = value;
      const wantedClass = at === 0 || columns[at][0] === "State" || columns[at][0] === "Event" ? `${columns[at][1]} ${kind}`.trim() : columns[at][1];
      if (cell.className !== wantedClass) cell.className = wantedClass;
    });
  }
}

function list(id, pairs) {
  const element = $(id);
  for (const [at, [term, value, kind = ""]] of pairs.entries()) {
    let group = element.children[at];
    if (!group) {
      group = document.createElement("div");
      group.append(document.createElement("dt"), document.createElement("dd"));
      element.append(group);
    }
    const [name, text] = group.children;
    if (name.textContent !== term) name.textContent = term;
    if (text.textContent !== String(value)) text.textContent = value;
    text.className = kind;
  }
}

function sentences() {
  const element = $("sentences"), items = Object.entries(picture.sentences).sort(([a], [b]) => a - b);
  while (element.children.length > items.length) element.lastElementChild.remove();
  items.forEach(([, item], at) => {
    let one = element.children[at];
    if (!one) {
      one = document.createElement("li");
      one.append(document.createElement("b"), document.createElement("span"));
      element.append(one);
    }
    const [text, help] = one.children;
    one.className = item.level;
    if (text.textContent !== item.text) text.textContent = item.text;
    if (help.textContent !== item.help) help.textContent = item.help;
  });
  // Read out when it changes by more than the seconds that pass.
  const first = items.length ? items[0][1].text.replace(/, for \d+ (s|min)/g, "") : "";
  if ($("announced").textContent !== first) $("announced").textContent = first;
}

function left(id, name, total, what) {
  const rest = total - Math.min(shown[name].rows.size, total);
  const text = total === 0 ? `No ${what}.` : rest > 0 ? `And ${number(rest)} ${what} more.` : "";
  if ($(id).textContent !== text) $(id).textContent = text;
}

function drawAll() {
  due = false;
  const {quorum, counts, log, commits} = picture;
  $("cluster").textContent = picture.clusterId;
  document.title = `${quorum.leaderId < 0 ? "No leader" : "Leader " + quorum.leaderId}: KRaft quorum ${picture.clusterId}`;
  sentences();
  list("quorum", [["Leader", quorum.leaderId < 0 ? "none answers" : quorum.leaderId, quorum.leaderId < 0 ? "bad" : ""],
    ["Epoch", quorum.epoch], ["High watermark", number(quorum.highWatermark)], ["Log end", number(quorum.logEndOffset)],
    ["Log start", number(log.startOffset ?? 0)], ["Shown up to", number(log.takenIn ?? 0)],
    ["Committed a second", number(commits.rate ?? 0)]]);
  list("counts", [["Brokers", number(counts.brokers)], ["Fenced", number(counts.fencedBrokers), counts.fencedBrokers ? "warn" : ""],
    ["Topics", number(counts.topics)], ["Partitions", number(counts.partitions)],
    ["Offline", number(counts.offline), counts.offline ? "bad" : ""],
    ["Under min ISR", number(counts.underMinIsr), counts.underMinIsr ? "bad" : ""],
    ["Under-replicated", number(counts.underReplicated), counts.underReplicated ? "warn" : ""],
    ["With ELR", number(counts.withElr)], ["Not led by the preferred", number(counts.notLedByPreferred)],
    ["Moving", number(counts.reassigning)]]);
  for (const name of ["replicas", "controllers", "brokers", "troubled", "groups", "events"]) draw(name, picture[name]);
  left("brokers-note", "brokers", counts.brokers, "brokers");
  left("troubled-note", "troubled", Math.max(counts.offline, counts.underMinIsr, counts.underReplicated), "partitions in trouble");
  left("groups-note", "groups", Object.keys(picture.groups).length, "consumer groups known: they need --bootstrap-server");
  plot();
}

function changed() {
  if (!due) { due = true; requestAnimationFrame(drawAll); }
}

// --- plots

const COLORS = {rate: "#4c78a8", p50: "#4c78a8", p99: "#f58518", offline: "#e45756", underMinIsr: "#f58518", underReplicated: "#eeca3b"};
const NAMES = {rate: "records/s", p50: "p50", p99: "p99", offline: "offline", underMinIsr: "under min ISR", underReplicated: "under-replicated"};
const PLOTS = {rate: ["rate"], latency: ["p50", "p99"], trouble: ["underReplicated", "underMinIsr", "offline"]};
const views = {};

function spec(fields) {
  const ink = dark.matches ? "#c8ccd0" : "#333", grid = dark.matches ? "#3a3d40" : "#ddd";
  return {$schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", height: 120,
    autosize: {type: "fit-x", contains: "padding"}, background: "transparent", data: {name: "rows"},
    mark: {type: "line", interpolate: "step-after", clip: true},
    encoding: {x: {field: "at", type: "temporal", scale: {type: "utc"}, axis: {title: null, format: "%H:%M:%S", labelOverlap: true, tickCount: 5}},
      y: {field: "value", type: "quantitative", scale: {zero: true, nice: true}, axis: {title: null, tickCount: 4, minExtent: 40}},
      color: {field: "kind", type: "nominal", legend: fields.length > 1 ? {orient: "top", title: null} : null,
        scale: {domain: fields.map(one => NAMES[one]), range: fields.map(one => COLORS[one])}}},
    config: {font: "sans-serif", view: {stroke: null}, axis: {labelColor: ink, domainColor: grid, tickColor: grid, gridColor: grid},
      legend: {labelColor: ink}}};
}

function rows(fields) {
  return Object.values(picture.samples).sort((a, b) => a.at - b.at)
    .flatMap(one => fields.filter(field => one[field] >= 0).map(field => ({at: one.at, value: one[field], kind: NAMES[field]})));
}

async function make(name) {
  views[name] = null;
  const {view} = await vegaEmbed($(name), spec(PLOTS[name]), {actions: false, renderer: "svg", tooltip: false, ast: false});
  // The figure's caption names the plot; what Vega says of each mark would be read out every second.
  for (const one of $(name).querySelectorAll("svg, svg [role], svg [aria-label]")) { one.removeAttribute("role"); one.setAttribute("aria-hidden", "true"); }
  views[name] = view;
  changed();
}

function plot() {
  for (const [name, fields] of Object.entries(PLOTS)) {
    if (views[name]) {
      views[name].data("rows", rows(fields)).runAsync();
      $(name).dataset.drawn = "yes";
    } else if (views[name] === undefined && window.vegaEmbed) make(name);
  }
}

dark.addEventListener("change", () => { for (const name of Object.keys(views)) { views[name]?.finalize(); delete views[name]; } changed(); });

// --- what the server sends

$("search").addEventListener("submit", async event => {
  event.preventDefault();
  const text = $("search-text").value.trim();
  if (!text) return;
  const answer = await fetch(`partitions?search=${encodeURIComponent(text)}`);
  const found = answer.ok ? await answer.json() : [];
  draw("found", Object.fromEntries(found.map(one => [`p ${one.name}`, one])));
  $("found").parentElement.hidden = !found.length;
  $("found-note").textContent = `${found.length >= 200 ? "The first 200" : found.length} partitions found for ${text}.`;
});

Object.keys(TABLES).forEach(prepare);
const source = new EventSource("events");
source.addEventListener("picture", event => {
  picture = JSON.parse(event.data);
  $("connection").textContent = "live";
  changed();
});
source.addEventListener("change", event => {
  if (picture) { picture = merge(picture, JSON.parse(event.data)); changed(); }
});
source.addEventListener("error", () => { $("connection").textContent = "the connection is lost; what is seen is old, and the page tries again"; });
window.kraftDashboard = {get picture() { return picture; }, views};
