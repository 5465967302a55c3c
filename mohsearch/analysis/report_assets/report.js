"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "hexagon"];
  const INK = "#22262b", SOFT = "#6b737c", GRID = "#e3e6ea", FADED = "#d5dae0";
  const FONT = { family: 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif', size: 13, color: INK };
  const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  const MANY = 5000; // points from which the drawing goes through WebGL
  const unpacked = new Map();
  let data, at, limits, kept, chosen = -1, asked = 0;

  async function inflate(text) {
    const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function make(tag, text, kind) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  }

  // numbers ---------------------------------------------------------------------------------------

  function figures(value, digits = 4) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "-";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size < 1e-3 || size >= 1e7) return value.toExponential(digits - 1);
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }

  const metric = (name) => at.metrics.find((m) => m.name === name);
  const shown = (m, k) => (at.values[m.name][k] === null ? null : at.values[m.name][k] * m.factor);
  const quantity = (m, k) => `${figures(shown(m, k))} ${m.unit}`.trim();
  const heading = (m) => (m.unit ? `${m.label} (${m.unit})` : m.label);
  const sign = (m) => (m.sense === "max" ? -1 : 1);
  const clock = (seconds) => {
    for (const [factor, unit] of [[1, "s"], [1e3, "ms"], [1e6, "µs"], [1e9, "ns"]])
      if (seconds * factor >= 1) return [factor, unit];
    return [1e12, "ps"];
  };

  function colourOf(number) { return data.palette[number % data.palette.length]; }
  function symbolOf(number) { return SYMBOLS[(number + Math.floor(number / 8)) % SYMBOLS.length]; }

  // tables ----------------------------------------------------------------------------------------

  const NUMBER = /^[-+]?[\d,.]+(e[-+]?\d+)?( ?[%a-zA-Zµ²/·]{1,5})?$/;

  function table(spec, onRow) {
    const box = make("div", undefined, spec.rows.length > 24 ? "scroll tall" : "scroll");
    const element = make("table");
    if (spec.title) element.append(make("caption", spec.title));
    const numeric = spec.columns.map((_, j) => spec.rows.some((row) => row[j]) &&
      spec.rows.every((row) => !row[j] || row[j] === "-" || NUMBER.test(row[j])));
    const head = make("tr");
    spec.columns.forEach((name, j) => head.append(make("th", name, numeric[j] ? "number" : "")));
    const top = make("thead");
    top.append(head);
    const body = make("tbody");
    spec.rows.forEach((cells, i) => {
      const row = make("tr", undefined, onRow ? "link" : "");
      cells.forEach((cell, j) => row.append(make("td", cell, numeric[j] ? "number" : "")));
      if (onRow) row.addEventListener("click", () => onRow(i));
      body.append(row);
    });
    element.append(top, body);
    box.append(element);
    return box;
  }

  // the front -------------------------------------------------------------------------------------

  // plotly's own labels of a log axis leave the power of ten out of 2 and 5
  const LOG_TICKS = [];
  for (let power = -12; power <= 15; power += 1) for (const digit of [1, 2, 5]) LOG_TICKS.push(Number(`${digit}e${power}`));

  function axis(text, log, extra = {}) {
    return {
      title: { text, standoff: 8 }, type: log ? "log" : "linear", gridcolor: GRID, zeroline: false,
      linecolor: SOFT, ticks: "outside", tickcolor: SOFT, automargin: true,
      ...(log ? { tickmode: "array", tickvals: LOG_TICKS, ticktext: LOG_TICKS.map(String) } : {}), ...extra,
    };
  }

  function usable(k) {
    if ($("best").checked && !at.best[k]) return false;
    return limits.every(({ m, value }) =>
      value === null || (at.values[m.name][k] !== null && sign(m) * at.values[m.name][k] <= sign(m) * value));
  }

  function drawFront() {
    const x = metric($("x").value), y = metric($("y").value), by = $("colour").value;
    const all = at.member.map((_, k) => k);
    kept = all.filter(usable);
    const inside = new Set(kept);
    const kind = all.length > MANY ? "scattergl" : "scatter";
    const points = (rows) => ({ type: kind, mode: "markers", x: rows.map((k) => shown(x, k)),
      y: rows.map((k) => shown(y, k)), customdata: rows });
    const hover = (rows) => rows.map((k) => `${at.members[at.member[k]].label}, solution ${at.solution[k]}<br>` +
      at.objectives.map((n) => `${metric(n).label} ${quantity(metric(n), k)}`).join("<br>"));
    const outside = all.filter((k) => !inside.has(k));
    const traces = [];
    if (outside.length) traces.push({ ...points(outside), name: "outside", hoverinfo: "skip",
      marker: { color: FADED, size: 4 }, showlegend: false });
    if (by === "") {
      at.contenders.forEach((name, c) => {
        const rows = kept.filter((k) => at.members[at.member[k]].contender === c);
        if (rows.length) traces.push({ ...points(rows), name, text: hover(rows), hovertemplate: "%{text}<extra></extra>",
          marker: { color: colourOf(c), symbol: symbolOf(c), size: 7, opacity: 0.8, line: { width: 0.5, color: "#fff" } } });
      });
    } else {
      const z = metric(by), values = kept.map((k) => shown(z, k));
      const logged = z.log && values.every((v) => v > 0);
      traces.push({ ...points(kept), name: z.label, text: hover(kept), hovertemplate: "%{text}<extra></extra>",
        marker: { color: logged ? values.map(Math.log10) : values, colorscale: "Viridis", size: 7, opacity: 0.85,
          colorbar: colourBar(z, values, logged) } });
    }
    if (chosen >= 0) traces.push({ type: kind, mode: "markers", x: [shown(x, chosen)], y: [shown(y, chosen)],
      name: "chosen", hoverinfo: "skip", showlegend: false,
      marker: { symbol: "circle-open", size: 17, color: INK, line: { width: 2.4, color: INK } } });
    const bound = at.members.length ? [x, y].map((m) => m.name) : [];
    Plotly.react("front-plot", traces, {
      font: FONT, margin: { l: 70, r: 16, t: 14, b: 56 }, hovermode: "closest", dragmode: "zoom",
      xaxis: axis(heading(x), $("xlog").checked), yaxis: axis(heading(y), $("ylog").checked),
      showlegend: by === "" && at.contenders.length > 1, uirevision: [at.name, ...bound, $("xlog").checked, $("ylog").checked].join(),
      legend: { orientation: "h", y: -0.17, yanchor: "top", font: { size: 12 } },
    }, CONFIG);
    drawPicks();
  }

  function colourBar(z, values, logged) {
    const bar = { title: { text: heading(z), side: "right" }, thickness: 12 };
    if (!logged || !values.length) return bar;
    const low = Math.log10(Math.min(...values)), high = Math.log10(Math.max(...values));
    const ticks = [0, 1, 2, 3, 4].map((i) => low + (high - low) * i / 4);
    return { ...bar, tickvals: ticks, ticktext: ticks.map((t) => figures(10 ** t, 3)) };
  }

  function drawPicks() {
    const objectives = at.objectives.map(metric);
    $("remaining").textContent = `${kept.length.toLocaleString("en")} of ${at.member.length.toLocaleString("en")} solutions`;
    const spans = objectives.map((m) => {
      const values = kept.map((k) => sign(m) * at.values[m.name][k]);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      return [low, values.reduce((a, b) => Math.max(a, b), -Infinity) - low || 1];
    });
    const picks = new Map();
    const add = (k, why) => { if (k >= 0) picks.set(k, [...(picks.get(k) || []), why]); };
    const least = (score) => kept.reduce((best, k) => (best < 0 || score(k) < score(best) ? k : best), -1);
    objectives.forEach((m) => add(least((k) => sign(m) * at.values[m.name][k]), `best ${m.label}`));
    if (objectives.length > 1) add(least((k) => objectives.reduce((sum, m, j) =>
      sum + (sign(m) * at.values[m.name][k] - spans[j][0]) / spans[j][1], 0)), "knee");
    const rows = [...picks];
    const several = at.members.length > 1;
    const spec = {
      title: "Among these", columns: ["", ...objectives.map(heading), ...(several ? ["run"] : []), "solution"],
      rows: rows.map(([k, why]) => [why.join(", "), ...objectives.map((m) => figures(shown(m, k))),
        ...(several ? [at.members[at.member[k]].label] : []), String(at.solution[k])]),
    };
    const made = table(spec, (i) => choose(rows[i][0])).firstChild;
    made.id = "picks";
    $("picks").replaceWith(made);
  }

  function drawBudgets() {
    const box = $("budgets");
    box.replaceChildren();
    limits = [];
    for (const m of at.metrics) {
      const objective = at.objectives.includes(m.name);
      const values = [...new Set(at.values[m.name].filter((v) => v !== null))].sort((a, b) => sign(m) * (a - b));
      if (values.length < 2 || (!objective && limits.length >= at.objectives.length + 3)) continue;
      const limit = { m, value: null };
      limits.push(limit);
      const input = make("input");
      input.type = "range";
      input.min = 0;
      input.max = values.length - 1;
      input.value = values.length - 1;
      input.setAttribute("aria-label", `budget of ${m.label}`);
      input.dataset.metric = m.name;
      const output = make("output", "any");
      input.addEventListener("input", () => {
        const place = Number(input.value);
        limit.value = place === values.length - 1 ? null : values[place];
        output.textContent = limit.value === null ? "any"
          : `${m.sense === "max" ? "≥" : "≤"} ${figures(limit.value * m.factor)} ${m.unit}`;
        drawFront();
      });
      const name = make("label", m.label);
      name.title = m.description;
      box.append(name, input, output, make("span", objective ? "objective" : "", "soft"));
    }
  }

  function showCase(number) {
    at = data.cases[number];
    chosen = -1;
    const order = [...at.objectives, ...at.metrics.map((m) => m.name).filter((n) => !at.objectives.includes(n))];
    for (const [id, start] of [["x", 0], ["y", 1]]) {
      $(id).replaceChildren(...order.map((n) => new Option(heading(metric(n)), n)));
      $(id).value = order[Math.min(start, order.length - 1)];
    }
    const third = at.objectives.length > 2 && at.contenders.length === 1 ? at.objectives[2] : "";
    $("colour").replaceChildren(new Option(at.contenders.length > 1 ? "run" : "one colour", ""),
      ...order.map((n) => new Option(metric(n).label, n)));
    $("colour").value = third;
    setLogs();
    drawBudgets();
    drawFront();
    drawConvergence();
    const folders = [...new Set(at.members.map((m) => m.folder))];
    $("front-command").textContent = folders.map((f) => `mohsearch plot front ${f}`).join("\n");
    choose(at.knee);
  }

  function setLogs() {
    $("xlog").checked = metric($("x").value).log;
    $("ylog").checked = metric($("y").value).log;
  }

  // one design ------------------------------------------------------------------------------------

  async function sheetOf(number) {
    const block = Math.floor(number / data.block);
    if (!unpacked.has(block)) unpacked.set(block, inflate($(`designs-${block}`).textContent));
    return (await unpacked.get(block))[number % data.block];
  }

  async function choose(k) {
    const ticket = ++asked;
    chosen = k;
    drawFront();
    const member = at.members[at.member[k]];
    $("design-title").textContent = `${member.label}: solution ${at.solution[k]}`;
    $("design-command").textContent = `${member.command} --solution ${at.solution[k]}`;
    showMetrics(k);
    for (const id of ["design-pictures", "design-tables", "design-facts"]) $(id).replaceChildren();
    if (at.sheet[k] < 0) {
      $("design-line").textContent = "This design is not in the page; the command below prints it.";
      return;
    }
    const sheet = await sheetOf(at.sheet[k]);
    if (ticket !== asked) return;
    $("design-line").textContent = sheet.line;
    for (const picture of sheet.pictures) {
      const place = make("div", undefined, "picture");
      $("design-pictures").append(place);
      (picture.kind === "gantt" ? drawGantt : drawStack)(place, picture);
    }
    $("design-tables").append(...sheet.tables.map((t) => table(t)));
    for (const [title, rows] of sheet.facts) {
      if (rows.length > 12) {
        const fold = make("details");
        fold.append(make("summary", title || "design"), table({ columns: ["", ""], rows }));
        $("design-facts").append(fold);
      } else $("design-facts").append(table({ title, columns: ["", ""], rows }));
    }
  }

  function showMetrics(k) {
    const box = make("div", undefined, "metrics");
    for (const m of at.metrics) {
      const cell = make("div", undefined, at.objectives.includes(m.name) ? "objective" : "");
      cell.title = m.description;
      cell.append(make("span", m.label), quantity(m, k));
      const over = at.over[m.name] && at.over[m.name][k];
      if (over !== undefined && over !== null)
        cell.append(make("span", over > 9 ? `${figures(1 + over, 3)} times its bound` : `${(100 * over).toFixed(1)} % off its bound`));
      box.append(cell);
    }
    $("design-metrics").replaceChildren(box);
  }

  function drawGantt(place, g) {
    const [factor, unit] = clock(g.end_s);
    const step = g.end_s * factor / data.steps;
    const groups = [...new Set(g.rows.map((r) => r[1]))];
    const networks = [...new Set(g.name.map((n) => data.names[n][1]))];
    const shade = (n) => networks.length > 1 ? 0.4 + 0.6 * networks.indexOf(n) / (networks.length - 1) : 0.85;
    const traces = groups.map((group, c) => {
      const rows = g.name.map((_, i) => i).filter((i) => g.rows[g.row[i]][1] === group);
      return {
        type: "bar", orientation: "h", name: group, y: rows.map((i) => g.rows[g.row[i]][0]),
        base: rows.map((i) => g.start[i] * step), x: rows.map((i) => g.length[i] * step), width: 0.7,
        marker: { color: colourOf(c), opacity: rows.map((i) => shade(data.names[g.name[i]][1])), line: { width: 0.4, color: "#fff" } },
        text: rows.map((i) => `${data.names[g.name[i]][0]}<br>${figures(g.start[i] * step)} to ${figures((g.start[i] + g.length[i]) * step)} ${unit}` +
          (g.stall && g.stall[i] ? `<br>stalled ${figures(g.stall[i] * step)} ${unit}` : "")),
        textposition: "none", hovertemplate: "%{text}<extra></extra>",
      };
    });
    if (g.stall) {
      const rows = g.name.map((_, i) => i).filter((i) => g.stall[i]);
      traces.push({ type: "bar", orientation: "h", name: "stalled", y: rows.map((i) => g.rows[g.row[i]][0]),
        base: rows.map((i) => (g.start[i] + g.length[i] - g.stall[i]) * step), x: rows.map((i) => g.stall[i] * step),
        width: 0.12, offset: 0.3, marker: { color: "#000" }, hoverinfo: "skip" });
    }
    place.style.height = `${110 + 24 * g.rows.length}px`;
    Plotly.newPlot(place, traces, {
      font: FONT, barmode: "overlay", margin: { l: 90, r: 8, t: 34, b: 44 }, title: titled(g.title),
      xaxis: axis(`time (${unit})`, false, { range: [0, g.end_s * factor] }),
      yaxis: axis("", false, { type: "category", categoryorder: "array", categoryarray: g.rows.map((r) => r[0]), autorange: "reversed", gridcolor: "#fff" }),
      showlegend: traces.length > 1, legend: { orientation: "h", y: 1, yanchor: "bottom", x: 1, xanchor: "right", font: { size: 11 } },
    }, CONFIG);
  }

  function titled(text) { return { text, x: 0, xref: "paper", xanchor: "left", font: { size: 13 } }; }

  function drawStack(place, s) {
    place.style.height = "270px";
    const traces = s.series.map(([name, values], c) => ({
      type: "bar", name, x: s.places, y: values, marker: { color: colourOf(c) },
      hovertemplate: `${s.axis} %{x}: ${name} %{y:.4g} ${s.unit}<extra></extra>`,
    }));
    Plotly.newPlot(place, traces, {
      font: FONT, barmode: "stack", bargap: 0.18, margin: { l: 60, r: 8, t: 34, b: 44 }, title: titled(s.title),
      xaxis: axis(s.axis, false, { type: "category" }), yaxis: axis(s.unit, false),
      showlegend: traces.length > 1, legend: { font: { size: 11 } },
    }, CONFIG);
  }

  // the other sections ----------------------------------------------------------------------------

  function drawConvergence() {
    $("convergence").hidden = !at.bands.length;
    if (!at.bands.length) return;
    const traces = [];
    at.bands.forEach((b) => {
      const colour = colourOf(Math.max(0, at.contenders.indexOf(b.contender)));
      if (b.runs > 1) traces.push({ x: [...b.evaluations, ...[...b.evaluations].reverse()],
        y: [...b.high, ...[...b.low].reverse()], fill: "toself", fillcolor: `${colour}2e`, line: { width: 0 },
        hoverinfo: "skip", showlegend: false, mode: "lines" });
      traces.push({ x: b.evaluations, y: b.median, mode: "lines", line: { color: colour, width: 2 },
        name: b.runs > 1 ? `${b.contender} (${b.runs} seeds)` : b.contender,
        hovertemplate: "%{x:,} evaluations: %{y:.4f}<extra></extra>" });
    });
    Plotly.react("convergence-plot", traces, {
      font: FONT, margin: { l: 70, r: 16, t: 14, b: 50 }, xaxis: axis("evaluations", false),
      yaxis: axis("hypervolume", false), showlegend: true, legend: { font: { size: 12 } },
    }, CONFIG);
    const folders = [...new Set(at.members.map((m) => m.folder))];
    $("convergence-command").textContent = folders.map((f) => `mohsearch plot convergence ${f}`).join("\n");
  }

  function drawComparisons() {
    $("comparison").hidden = !data.comparisons.length;
    for (const c of data.comparisons) {
      const box = $("comparison-body");
      if (data.comparisons.length > 1) box.append(make("h3", c.problem));
      box.append(...c.tables.map((t) => table(t)), ...c.notes.map((n) => make("p", n, "soft")));
      box.append(make("p", c.command, "command"));
    }
  }

  function drawAblations() {
    $("ablation").hidden = !data.ablations.length;
    for (const a of data.ablations) {
      const box = $("ablation-body"), place = make("div", undefined, "picture");
      box.append(make("h3", a.title), place);
      place.style.height = `${110 + 26 * a.names.length}px`;
      const names = [...a.names].reverse(), turn = (v) => [...v].reverse();
      const marks = [{ type: "bar", orientation: "h", y: names, x: turn(a.share), name: "here",
        marker: { color: turn(a.names.map((_, i) => data.palette[i ? 0 : 1])), opacity: 0.85 },
        error_x: { type: "data", symmetric: false, array: turn(a.high.map((h, i) => Math.max(0, h - a.share[i]))),
          arrayminus: turn(a.low.map((l, i) => Math.max(0, a.share[i] - l))), color: INK, thickness: 1 },
        hovertemplate: "%{y}: %{x:.1f} %<extra></extra>" }];
      if (a.published.some((p) => p !== null)) marks.push({ type: "scatter", mode: "markers", y: names, x: turn(a.published),
        name: "published", marker: { symbol: "diamond", size: 9, color: data.palette[2] }, hovertemplate: "published %{x:.1f} %<extra></extra>" });
      Plotly.newPlot(place, marks, {
        font: FONT, margin: { l: 150, r: 16, t: 10, b: 44 }, xaxis: axis("dominated (%)", false), yaxis: axis("", false, { type: "category" }),
        shapes: [{ type: "line", x0: a.share[0], x1: a.share[0], y0: 0, y1: 1, yref: "paper", line: { color: data.palette[1], dash: "dash" } }],
        showlegend: marks.length > 1,
      }, CONFIG);
      box.append(table(a.table), ...a.notes.map((n) => make("p", n, "soft")), make("p", a.command, "command"));
    }
  }

  function drawRuns() {
    $("runs").hidden = false;
    $("notes").append(...data.notes.map((n) => make("p", n)));
    $("runs-body").append(table(data.runs));
    for (const [run, certificate] of Object.entries(data.certificates)) {
      const fold = make("details");
      fold.append(make("summary", run), make("pre", JSON.stringify(certificate, null, 2)));
      $("certificates").append(fold);
    }
  }

  async function loadPlotly() {
    const script = make("script");
    script.textContent = await inflate($("plotly").textContent);
    document.head.append(script);  // runs at once
    $("plotly").remove();
  }

  async function start() {
    await loadPlotly();
    data = await inflate($("data").textContent);
    $("title").textContent = data.title;
    $("origin").textContent = `mohsearch ${data.version}; made with: ${data.command}`;
    $("case").replaceChildren(...data.cases.map((c, k) => new Option(c.name, k)));
    $("case-label").hidden = data.cases.length < 2;
    $("fronts").hidden = false;
    showCase(0);
    drawComparisons();
    drawAblations();
    drawRuns();
    for (const section of document.querySelectorAll("section:not([hidden])")) {
      const link = make("a", section.querySelector("h2").textContent);
      link.href = `#${section.id}`;
      $("nav").append(link);
    }
    $("case").addEventListener("change", () => showCase(Number($("case").value)));
    for (const id of ["x", "y"]) $(id).addEventListener("change", () => { setLogs(); drawFront(); });
    for (const id of ["colour", "xlog", "ylog", "best"]) $(id).addEventListener("change", drawFront);
    $("reset").addEventListener("click", () => { $("best").checked = false; drawBudgets(); drawFront(); });
    $("front-plot").on("plotly_click", (event) => {
      const point = event.points.find((p) => p.customdata !== undefined);
      if (point) choose(point.customdata);
    });
    $("loading").remove();
    document.body.dataset.ready = "yes";
  }

  start().catch((error) => {
    $("loading").textContent = `This page could not be shown: ${error}`;
    $("loading").className = "failed";
    throw error;
  });
})();
