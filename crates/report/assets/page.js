"use strict";
(function () {
  let data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = {};
  const charts = new Map();
  const views = new Map();
  /* Bands of more methods than these lie over each other. */
  const BANDS = data.bands;
  const shades = data.shades;

  const make = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "onclick" || key === "onchange" || key === "oninput") node[key] = value;
      else node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  };
  /* Paper is white, whatever the screen is. */
  let paper = false;
  const ink = { "--ground": "#ffffff", "--card": "#ffffff", "--text": "#000", "--faint": "#444", "--axis": "#666", "--line": "#ccc" };
  const night = () => dark.matches && !paper;
  const tint = (style) => (night() ? style.dark : style.colour);
  const FAINT = [2, 3];
  const variable = (name) => (paper ? ink[name] : getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => "&#" + c.charCodeAt(0) + ";");
  const number = (value, percent) => {
    if (value === null || value === undefined) return "-";
    if (percent) return (100 * value).toFixed(2) + " %";
    return Number.isInteger(value) ? String(value) : Number(value.toPrecision(5)).toString();
  };
  const crowded = () => data.methods.length - hidden.size > BANDS;
  const spread = (series) => !series.faint && series.points.some((p) => p[2] < p[3]);
  const name = (series) => data.methods[series.method].label + (series.part ? ", " + series.part : "");

  /* Dots have no dashes: where colours come again, the mark is another one. */
  const MARKS = {
    circle: "M9 5a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", triangle: "M13 0.5L17.5 9H8.5Z", rect: "M9.5 1.5H16.5V8.5H9.5Z", diamond: "M13 0L18 5L13 10L8 5Z",
  };
  const mark = (method) => Object.keys(MARKS)[data.methods[method].mark];

  /* The width of a text in a figure. */
  const pen = document.createElement("canvas").getContext("2d");
  const measure = (text, size) => {
    pen.font = `${size}px sans-serif`;
    return pen.measureText(text).width;
  };
  const longest = (names, size) => Math.max(0, ...names.map((label) => measure(label, size)));

  function axes() {
    const faint = variable("--faint"), line = variable("--line"), axis = { lineStyle: { color: variable("--axis") } };
    return {
      axisLabel: { color: faint, hideOverlap: true }, nameTextStyle: { color: faint },
      axisLine: axis, axisTick: axis, splitLine: { lineStyle: { color: line } },
    };
  }

  /* Labels and names of axes find their room inside. */
  const grid = { left: 6, right: 18, top: 6, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "all" };

  /* Labels of categories below a drawing `wide` pixels wide: turned if there is no room side by side, and whole unless
     they need more than half the height. */
  function below(text, names, wide, high) {
    const size = 11, needed = longest(names, size), each = wide / Math.max(names.length, 1);
    const numbers = names.every((label) => !Number.isNaN(Number(label)));
    const rotate = numbers || needed + 8 <= each ? 0 : each >= 26 ? 45 : 90;
    const interval = rotate ? Math.max(0, Math.ceil(size * 1.15 / each) - 1) : numbers ? Math.max(0, Math.ceil((needed + 8) / each) - 1) : 0;
    return { ...text.axisLabel, rotate, interval, hideOverlap: false, width: Math.min(needed + 2, high / 2), overflow: "truncate", fontSize: size };
  }

  function box() {
    return {
      backgroundColor: variable("--ground"), borderColor: variable("--line"), confine: true,
      textStyle: { color: variable("--text"), fontSize: 12 },
    };
  }

  /* The ends of an axis at round numbers around what is seen, never outside a range. ECharts alone goes far beyond a flat curve. */
  function ends(seen, low, high) {
    const span = seen.max - seen.min, margin = span > 0 ? 0.04 * span : Math.max(0.01, 0.1 * Math.abs(seen.max));
    if (!Number.isFinite(span)) return [low, high].map((end) => (Number.isFinite(end) ? end : undefined));
    const [bottom, top] = span > 0 ? [seen.min, seen.max] : [seen.min - margin, seen.max + margin];
    const raw = (top - bottom) / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => raw / power < factor * 1.5);
    const round = (value) => Number(value.toPrecision(12));
    return [
      seen.min - margin < low ? low : Math.max(low, round(Math.floor(bottom / step) * step)),
      seen.max + margin > high ? high : Math.min(high, round(Math.ceil(top / step) * step)),
    ];
  }

  function lines(figure) {
    const text = axes(), shown = figure.series.filter((series) => !hidden.has(series.method));
    const scale = figure.percent ? 100 : 1;
    const series = [];
    const single = shown.every((one) => one.points.length < 2), bands = !crowded();
    const [low, high] = figure.range.map((end, i) => end ?? (i ? Infinity : -Infinity));
    const within = (value) => Math.min(high, Math.max(low, value)) * scale;
    for (const one of shown) {
      const style = data.methods[one.method], colour = tint(style);
      if (bands && spread(one)) {
        series.push({
          type: "custom", silent: true, name: name(one) + " (band)", tooltip: { show: false }, z: 1,
          /* The axis makes room for the ends of the band; the first of them draws all of it. */
          data: [Math.min(...one.points.map((p) => p[2])), Math.max(...one.points.map((p) => p[3]))].map((end) => [one.points[0][0], within(end)]),
          clip: true,
          renderItem: (parameters, api) => parameters.dataIndex > 0 ? null : ({
            type: "polygon", silent: true,
            shape: {
              points: one.points.map((p) => api.coord([p[0], within(p[3])]))
                .concat(one.points.slice().reverse().map((p) => api.coord([p[0], within(p[2])]))),
            },
            style: { fill: colour, opacity: night() ? 0.2 : 0.13 },
          }),
        });
      }
      /* Single seeds: a thin line that ends in a dot. */
      for (const line of (bands && one.seeds) || []) {
        const last = line.points.length - 1;
        series.push({
          type: "line", silent: true, name: name(one) + ", seed " + line.seed, z: 2, symbol: "circle", showAllSymbol: true,
          symbolSize: (value, item) => (item.dataIndex === last ? 4 : 0), tooltip: { show: false },
          data: line.points.map((p) => [p[0], p[1] * scale]),
          lineStyle: { color: colour, width: 0.8, opacity: data["seed-strength"] }, itemStyle: { color: colour },
          emphasis: { disabled: true },
        });
      }
      series.push({
        type: "line", name: name(one), z: 3, showSymbol: single || one.points.length < 2, symbolSize: 6,
        data: one.points.map((p) => [p[0], p[1] * scale]),
        lineStyle: { color: colour, width: one.faint ? 1.5 : 2.4, type: one.faint ? FAINT : style.dash.length ? style.dash : "solid" },
        itemStyle: { color: colour }, emphasis: { disabled: true },
      });
    }
    const whole = figure.x === "round";
    return {
      animation: false, grid,
      tooltip: {
        ...box(), trigger: "axis", axisPointer: { type: "line" }, order: "valueDesc",
        formatter: (items) => {
          if (!items.length) return "";
          const means = items.filter((item) => item.seriesType === "line" && shown.some((series) => name(series) === item.seriesName));
          const rows = means.map((item) => {
            const one = shown.find((series) => name(series) === item.seriesName);
            const point = one && one.points.find((p) => p[0] === item.value[0]);
            const sd = point && point[3] > point[1] ? " ± " + number(point[3] - point[1], figure.percent) : "";
            return `<tr><td>${item.marker}${escape(item.seriesName)}</td><td style="text-align:right;padding-left:10px">${number(item.value[1] / scale, figure.percent)}${sd}</td></tr>`;
          });
          return `${escape(figure.x)} ${number(items[0].value[0])}<table>${rows.join("")}</table>`;
        },
      },
      xAxis: {
        type: "value", name: figure.x, nameLocation: "middle", nameGap: 24, scale: true, minInterval: whole ? 1 : 0,
        ...text, splitLine: { show: false },
        min: !whole ? 0 : single ? undefined : "dataMin", max: !whole || single ? undefined : "dataMax",
      },
      yAxis: {
        type: "value", name: figure.y + (figure.percent ? " (%)" : ""), nameLocation: "end", scale: true, ...text,
        nameTextStyle: { ...text.nameTextStyle, align: "left" },
        min: (seen) => (Number.isFinite(low) ? ends(seen, low * scale, high * scale)[0] : undefined),
        max: (seen) => (Number.isFinite(high) ? ends(seen, low * scale, high * scale)[1] : undefined),
      },
      series,
    };
  }

  /* Black or white, whichever is easier to read on a colour (WCAG's luminance). */
  const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const over = (colour) => {
    const [r, g, b] = channels(colour).map((part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
  };

  /* The colours of a map. Counts go from the middle shade to the end that is far from the ground. */
  const ramp = (figure) => (figure.percent ? shades : night() ? shades.slice(4) : shades.slice(0, 5).reverse());
  const share = (figure, value) => (figure.percent ? value / (figure.high || 1) : Math.sqrt(value / (figure.high || 1)));
  const shade = (figure, value) => {
    const all = ramp(figure), at = Math.max(0, Math.min(1, share(figure, value))) * (all.length - 1), i = Math.min(Math.floor(at), all.length - 2);
    const [a, b] = [channels(all[i]), channels(all[i + 1])];
    return "#" + a.map((part, k) => Math.round(part + (at - i) * (b[k] - part)).toString(16).padStart(2, "0")).join("");
  };

  /* Numbers beside the scale: even steps of shares; of counts 1, round numbers with room between them, and the most. */
  function marks(figure) {
    if (figure.percent) {
      const steps = [0, 0.25, 0.5, 0.75, 1].map((part) => part * figure.high);
      return steps.map((value) => [value, Number((100 * value).toFixed(1)) + " %"]);
    }
    const found = [1];
    for (let power = 1; power <= 1e9; power *= 10) {
      for (const value of [power, 2 * power, 5 * power]) {
        const last = share(figure, found[found.length - 1]);
        if (value > 1 && value < figure.high && share(figure, value) - last > 0.13 && 1 - share(figure, value) > 0.13) found.push(value);
      }
    }
    if (figure.high > 1) found.push(figure.high);
    return found.map((value) => [value, String(value)]);
  }

  /* The legend of a map: a bar from the top (most) to the bottom. */
  function bar(figure, width, height, colour) {
    const all = marks(figure), high = Math.min(200, height - 60), top = (height - high) / 2, left = width - 12 - longest(all.map((one) => one[1]), 10) - 12;
    const stops = ramp(figure).slice().reverse().map((stop, i, list) => ({ offset: i / (list.length - 1), color: stop }));
    const parts = [{ type: "rect", shape: { x: left, y: top, width: 10, height: high }, style: { fill: { type: "linear", x: 0, y: 0, x2: 0, y2: 1, colorStops: stops } } }];
    for (const [value, label] of all) {
      const y = top + high * (1 - share(figure, value));
      parts.push({ type: "line", shape: { x1: left + 10, x2: left + 14, y1: y, y2: y }, style: { stroke: colour } });
      parts.push({ type: "text", style: { x: left + 17, y, text: label, fill: colour, fontSize: 10, verticalAlign: "middle" } });
    }
    return { parts, room: width - left + 10 };
  }

  function heat(figure, width, height) {
    const text = axes(), cells = [], colour = text.axisLabel.color;
    const legend = bar(figure, width, height, colour);
    const beside = Math.min(longest(figure.rows, 11) + 2, width * 0.36);
    const wide = width - beside - 30 - legend.room, high = height - 60;
    const label = (value) => (figure.percent ? String(Math.round(100 * value)) : String(value));
    const room = wide / figure.columns.length, line = high / figure.rows.length;
    const most = figure.percent ? "100" : label(figure.high);
    const labelled = figure.x !== "round" && measure(most, 10) + 4 <= room && line >= 12;
    figure.cells.forEach((row, y) => row.forEach((value, x) => {
      const none = value === null, zero = !none && !figure.percent && value === 0;
      const fill = none ? variable("--line") : zero ? "transparent" : shade(figure, value);
      cells.push({
        value: [x, y, none ? "-" : value], itemStyle: { color: fill, borderColor: zero ? variable("--line") : fill, borderWidth: zero ? 0.3 : 0 },
        label: { show: labelled && !none && !zero, color: none || zero ? colour : over(fill) },
      });
    }));
    const every = Math.max(1, Math.ceil(13 / line));
    return {
      animation: false,
      grid: { ...grid, right: legend.room },
      graphic: { elements: legend.parts.map((part) => ({ ...part, silent: true })) },
      tooltip: {
        ...box(),
        formatter: (item) => `${escape(figure.y)} ${escape(figure.rows[item.value[1]])}<br>${escape(figure.x)} ${escape(figure.columns[item.value[0]])}<br><b>${item.value[2] === "-" ? "-" : number(item.value[2], figure.percent)}</b>`,
      },
      xAxis: {
        type: "category", data: figure.columns, name: figure.x, nameLocation: "middle", nameGap: 8,
        ...text, splitLine: { show: false }, axisTick: { show: false }, axisLabel: below(text, figure.columns, wide, height),
      },
      yAxis: {
        type: "category", data: figure.rows, inverse: true, name: figure.y, nameLocation: "middle", nameGap: 8, ...text, splitLine: { show: false }, axisTick: { show: false },
        axisLabel: { ...text.axisLabel, hideOverlap: false, interval: every - 1, width: beside, overflow: "truncate", fontSize: 11 },
      },
      series: [{
        type: "heatmap", data: cells, progressive: 0,
        label: { fontSize: 10, formatter: (item) => label(item.value[2]) },
        emphasis: { itemStyle: { borderColor: variable("--text"), borderWidth: 1 } },
      }],
    };
  }

  const hue = (k, n) => data["class-colours"][n][night() ? 1 : 0][k];

  function points(figure) {
    const groups = new Map();
    for (const [x, y, k] of figure.points) {
      if (!groups.has(k)) groups.set(k, []);
      groups.get(k).push([x, y]);
    }
    const none = { show: false };
    const axis = { type: "value", scale: true, axisLabel: none, axisTick: none, splitLine: none, axisLine: none };
    return {
      animation: false, grid: { left: 8, right: 8, top: 8, bottom: 8 },
      tooltip: { ...box(), formatter: (item) => escape(item.seriesName) },
      xAxis: axis, yAxis: axis,
      series: [...groups.keys()].sort((a, b) => a - b).map((k) => ({
        type: "scatter", name: figure.classes[k], data: groups.get(k), symbolSize: 5,
        itemStyle: { color: hue(k, figure.classes.length) },
      })),
    };
  }

  function classes(figure, at, width, height) {
    const text = axes();
    const series = figure.series.map((rounds, method) => ({ rounds, method })).filter((one) => !hidden.has(one.method));
    return {
      animation: false, grid,
      tooltip: { ...box(), trigger: "axis", order: "valueDesc", valueFormatter: (value) => (value === null || value === undefined ? "-" : value.toFixed(2) + " %") },
      xAxis: {
        type: "category", data: figure.classes, name: "class", nameLocation: "middle", nameGap: 8,
        ...text, splitLine: { show: false }, axisLabel: below(text, figure.classes, width - 60, height),
      },
      yAxis: { type: "value", min: 0, max: 100, name: "accuracy (%)", ...text, nameTextStyle: { ...text.nameTextStyle, align: "left" } },
      series: series.map((one, i) => {
        const style = data.methods[one.method], each = (width - 60) / Math.max(figure.classes.length, 1);
        /* Marks of one class stand side by side. */
        const aside = Math.min(each * 0.6, 12 * series.length) * ((i + 0.5) / series.length - 0.5);
        return {
          type: "scatter", name: style.label, symbol: mark(one.method), symbolSize: Math.max(4, Math.min(9, each * 0.6)), symbolOffset: [aside, 0], data: one.rounds[at].map((v) => (v === null ? null : 100 * v)),
          itemStyle: { color: tint(style) }, emphasis: { disabled: true },
        };
      }),
    };
  }

  function option(figure, width, height) {
    switch (figure.kind) {
      case "lines": return lines(figure);
      case "heat": return heat(figure, width, height);
      case "points": return points(figure);
      default: return classes(figure, place(figure), width, height);
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.get(entry.target.dataset.figure);
      if (!chart || chart.node !== entry.target) continue;
      chart.near = entry.isIntersecting;
      if (chart.near && chart.stale) draw(chart);
    }
  }, { rootMargin: "300px" });

  function draw(chart) {
    if (!chart.instance) {
      const renderer = chart.figure.kind === "heat" ? "canvas" : "svg";
      chart.instance = echarts.init(chart.node, null, { renderer });
      /* Labels and numbers in cells depend on the room. */
      chart.sizes = new ResizeObserver(() => { chart.instance.resize(); renew(chart); });
      chart.sizes.observe(chart.node);
    }
    chart.instance.setOption(option(chart.figure, chart.instance.getWidth(), chart.instance.getHeight()), { notMerge: true });
    chart.stale = false;
    chart.node.dataset.drawn = "yes";
  }

  /* Draws again what can be seen, and the rest when it comes into sight. */
  function renew(chart) {
    chart.stale = true;
    if (chart.near) draw(chart);
  }

  /* The element of a figure; the one that is there gets the new numbers. */
  function plot(figure) {
    let chart = charts.get(figure.id);
    if (!chart) {
      const node = make("div", { class: figure.kind === "heat" ? "chart heat" : "chart", "data-figure": figure.id, role: "img" });
      chart = { node, figure, instance: null, sizes: null, near: false, stale: true };
      charts.set(figure.id, chart);
      seen.observe(node);
    } else if (chart.figure !== figure) {
      chart.figure = figure;
      renew(chart);
    }
    chart.node.setAttribute("aria-label", figure.title);
    return chart.node;
  }

  function forget(id) {
    const chart = charts.get(id);
    if (!chart) return;
    charts.delete(id);
    seen.unobserve(chart.node);
    if (chart.instance) {
      chart.sizes.disconnect();
      /* An empty drawing at once: parts of the last one that wait for a frame are given up. */
      chart.instance.clear();
      chart.instance.getZr().flush();
      chart.instance.dispose();
    }
    chart.node.remove();
  }

  const FEW = 6;
  const wanted = (card) => card.figures.filter((figure) => figure.method === null || !hidden.has(figure.method));

  /* A card's elements stay as long as the card does, whatever the numbers: focus and open lists stay with them. */
  function view(card) {
    const one = { card, figures: new Map(), heading: make("h2"), text: make("p", { class: "text" }), note: make("p", { class: "note" }) };
    one.note.textContent = `Bands and single seeds are drawn for at most ${BANDS} methods: hide some to see them.`;
    one.section = make("section", { id: "card-" + card.id }, one.heading, one.text, one.note);
    if (card.choice) {
      one.select = make("select", { "aria-label": card.title, onchange: (event) => { chosen[card.id] = one.card.figures[event.target.selectedIndex].id; fill(one); } });
      one.said = make("b", { class: "paper" });
      one.pick = make("div", { class: "tools" }, one.select, one.said);
      one.round = make("span");
      one.slider = make("input", {
        type: "range", min: 0, "aria-label": "round",
        oninput: (event) => {
          const figure = shown(one.card), at = Number(event.target.value);
          /* Who looks at the last round goes on with the run. */
          chosen[figure.id + "/round"] = at < figure.rounds.length - 1 ? figure.rounds[at] : undefined;
          one.round.textContent = "round " + figure.rounds[at];
          draw(charts.get(figure.id));
        },
      });
      one.rounds = make("div", { class: "tools" }, one.slider, one.round);
      one.legend = make("div", { class: "legend" });
      one.section.append(one.pick, one.rounds, one.legend);
    } else {
      one.legend = make("div", { class: "legend" });
      one.panels = make("div", { class: "panels" });
      one.button = make("button", { onclick: () => { chosen[card.id + "/all"] = !chosen[card.id + "/all"]; fill(one); } });
      one.more = make("div", { class: "tools" }, one.button);
      one.section.append(one.legend, one.panels, one.more);
    }
    return one;
  }

  const shown = (card) => card.figures.find((figure) => figure.id === chosen[card.id]) || card.figures[0];
  const place = (figure) => {
    const at = chosen[figure.id + "/round"], last = figure.rounds.length - 1;
    return at === undefined ? last : Math.max(0, figure.rounds.findLastIndex((round) => round <= at));
  };

  function fill(one) {
    const card = one.card;
    /* Panels need the whole width; two curves stand side by side. */
    one.section.classList.toggle("full", !card.choice && card.figures.length > 1);
    one.heading.textContent = card.title;
    one.text.textContent = card.text;
    one.note.hidden = !(crowded() && card.figures.some((figure) => figure.kind === "lines" && figure.series.some(spread)));
    if (card.choice) choice(one, card); else panels(one, card);
  }

  function choice(one, card) {
    const figure = shown(card), titles = card.figures.map((figure) => figure.title);
    if (titles.some((title, i) => !one.select.options[i] || one.select.options[i].text !== title) || one.select.length !== titles.length) {
      one.select.replaceChildren(...titles.map((title) => make("option", {}, title)));
    }
    one.select.selectedIndex = card.figures.indexOf(figure);
    one.said.textContent = figure.title;
    one.pick.hidden = titles.length < 2;
    one.rounds.hidden = figure.kind !== "classes";
    if (figure.kind === "classes") {
      one.slider.max = figure.rounds.length - 1;
      one.slider.value = place(figure);
      one.slider.hidden = figure.rounds.length < 2;
      one.round.textContent = "round " + figure.rounds[place(figure)];
    }
    for (const id of one.figures.keys()) if (id !== figure.id) { forget(id); one.figures.delete(id); }
    one.legend.replaceChildren(...keys(figure));
    const node = plot(figure);
    if (figure.kind === "heat") node.style.height = Math.max(300, Math.min(900, 90 + 18 * figure.rows.length)) + "px";
    if (!one.figures.has(figure.id)) one.section.append(node);
    one.figures.set(figure.id, node);
  }

  /* What solid and dotted lines mean. */
  function keys(figure) {
    if (figure.kind !== "lines") return [];
    const parts = new Map(figure.series.filter((series) => series.part).map((series) => [series.part, series.faint]));
    return [...parts].map(([part, faint]) => make("span", {}, stroke({ stroke: "currentColor", "stroke-width": faint ? 1.5 : 2.4, "stroke-dasharray": faint ? FAINT.join(" ") : "none" }), part));
  }

  function panels(one, card) {
    const all = chosen[card.id + "/all"], some = wanted(card), now = all ? some : some.slice(0, FEW);
    const ids = new Set(now.map((figure) => figure.id));
    for (const [id, panel] of one.figures) if (!ids.has(id)) { forget(id); panel.remove(); one.figures.delete(id); }
    now.forEach((figure, i) => {
      const node = plot(figure);
      if (!one.figures.has(figure.id)) one.figures.set(figure.id, make("figure", {}, make("figcaption"), node));
      const panel = one.figures.get(figure.id), there = one.panels.children[i];
      panel.firstChild.textContent = figure.title;
      if (there !== panel) one.panels.insertBefore(panel, there || null);
      if (figure.kind === "heat" && figure.y === "client") node.style.height = Math.max(300, Math.min(900, 90 + 18 * figure.rows.length)) + "px";
    });
    one.panels.classList.toggle("large", card.figures.some((figure) => figure.kind === "heat" && figure.rows.length > 20));
    const names = card.figures[0].kind === "points" ? card.figures[0].classes : [];
    one.legend.replaceChildren(...names.map((label, k) => make("span", {}, make("i", { style: "background:" + hue(k, names.length) }), label)));
    one.more.hidden = some.length <= FEW;
    one.button.textContent = all ? "Show fewer" : `Show all ${some.length}`;
  }

  const svg = (tag, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const stroke = (attributes, ...more) => svg("svg", { width: 26, height: 10 }, svg("line", { x1: 0, x2: 26, y1: 5, y2: 5, ...attributes }), ...more);

  /* A line as the method's curves are, with the mark of its dots. */
  const sample = (style, method) =>
    stroke({ stroke: tint(style), "stroke-width": 3, "stroke-dasharray": style.dash.length ? style.dash.join(" ") : "none" }, svg("path", { d: MARKS[mark(method)], fill: tint(style) }));

  /* The sections, on the side. */
  function contents() {
    const list = document.getElementById("contents"), wanted = [["main", "Results"]];
    for (const card of data.cards) wanted.push(["card-" + card.id, card.title]);
    for (const id of ["client-table", "reproduce"]) {
      const section = document.getElementById(id);
      if (section) wanted.push([id, section.querySelector("h2").textContent]);
    }
    const key = JSON.stringify(wanted);
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(make("ol", {}, ...wanted.map(([id, title]) => make("li", {}, make("a", { href: "#" + id, "data-key": "to " + id }, title)))));
  }

  /* Which section is being read. */
  function follow() {
    const links = [...document.querySelectorAll("#contents a")];
    const at = links.findLast((link) => (document.querySelector(link.getAttribute("href"))?.getBoundingClientRect().top ?? 1e9) < 120);
    for (const link of links) if (link === (at || links[0])) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }

  function legend() {
    document.querySelectorAll("#results i").forEach((node) => { node.style.background = tint(data.methods[node.dataset.method]); });
    const list = document.getElementById("methods"), key = JSON.stringify([data.methods, night()]);
    if (list.dataset.methods !== key) {
      list.dataset.methods = key;
      list.replaceChildren(...data.methods.map((style, method) => make("button", {
        title: "Show or hide", "data-key": "method " + style.label,
        onclick: () => {
          if (hidden.has(method)) hidden.delete(method); else hidden.add(method);
          refresh();
        },
      }, sample(style, method), style.label)));
      if (data.methods.length > 2) {
        list.append(make("button", {
          "data-key": "all methods",
          onclick: () => {
            if (hidden.size > 0) hidden.clear(); else data.methods.forEach((_, method) => hidden.add(method));
            refresh();
          },
        }));
      }
    }
    data.methods.forEach((_, method) => list.children[method].setAttribute("aria-pressed", hidden.has(method) ? "false" : "true"));
    if (data.methods.length > 2) list.lastChild.textContent = hidden.size > 0 ? "Show all" : "Hide all";
  }

  /* Methods were switched: curves are drawn again, panels come and go. */
  function refresh() {
    legend();
    for (const one of views.values()) fill(one);
    for (const chart of charts.values()) if (chart.figure.kind === "lines" || chart.figure.kind === "classes") renew(chart);
  }

  function build() {
    const list = document.getElementById("cards");
    legend();
    for (const [id, one] of views) {
      if (data.cards.some((card) => card.id === id)) continue;
      for (const figure of one.figures.keys()) forget(figure);
      one.section.remove();
      views.delete(id);
    }
    data.cards.forEach((card, i) => {
      if (!views.has(card.id)) views.set(card.id, view(card));
      const one = views.get(card.id);
      one.card = card;
      if (list.children[i] !== one.section) list.insertBefore(one.section, list.children[i] || null);
      fill(one);
    });
    contents();
    follow();
  }

  build();
  addEventListener("scroll", follow, { passive: true });
  dark.addEventListener("change", () => {
    legend();
    for (const one of views.values()) fill(one);
    charts.forEach(renew);
  });
  /* Browsers print canvases badly, and the window is not as wide as the paper: there, other drawings take their place.
     Nobody can press a button on paper, so that all panels are there. */
  const untwin = () => document.querySelectorAll(".twin").forEach((twin) => twin.remove());
  const twin = (figure, width, height) => {
    const drawing = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
    drawing.setOption(option(figure, width, height));
    const node = make("div", { class: "twin" });
    node.innerHTML = drawing.renderToSVGString();
    drawing.dispose();
    return node;
  };
  addEventListener("beforeprint", () => {
    paper = true;
    untwin();
    for (const one of views.values()) {
      const all = one.card.choice ? [shown(one.card)] : wanted(one.card);
      const width = one.card.choice || all.length < 2 || one.panels.classList.contains("large") ? 700 : 340;
      const height = one.figures.size ? charts.get(one.figures.keys().next().value).node.clientHeight : 310;
      for (const figure of all) {
        /* Two curves with their text fit on a page. */
        const least = figure.kind === "heat" ? height || 310 : Math.min(height || 310, 320);
        const chart = charts.get(figure.id), drawing = twin(figure, width, least);
        if (chart) chart.node.after(drawing);
        else one.panels.append(make("figure", { class: "twin" }, make("figcaption", {}, figure.title), drawing));
      }
    }
  });
  addEventListener("afterprint", () => {
    paper = false;
    untwin();
    charts.forEach(renew);
  });

  /* For tests: draws everything, and what the figures hold. */
  window.fedelity = {
    seeds: (id) => {
      const chart = charts.get(id);
      draw(chart);
      return chart.instance.getOption().series.filter((one) => one.type === "line" && one.silent).map((one) => ({ name: one.name, data: one.data }));
    },
    drawAll: () => charts.forEach((chart) => { draw(chart); chart.instance.resize(); }),
    series: (id) => {
      const chart = charts.get(id);
      draw(chart);
      return chart.instance.getOption().series.filter((one) => one.type !== "custom" && !one.silent)
        .map((one) => ({ name: one.name, data: one.data.map((item) => (item && item.value ? item.value : item)) }));
    },
    heights: (id) => {
      const chart = charts.get(id);
      draw(chart);
      return chart.instance.getModel().getComponent("yAxis", 0).axis.scale.getExtent();
    },
    option: (id) => {
      const chart = charts.get(id);
      draw(chart);
      return chart.instance.getOption();
    },
    shade: (id, value) => shade(charts.get(id).figure, value),
  };

  /* The text around the figures: what is as it was stays, and what was open stays open. */
  function retell(html) {
    const main = document.getElementById("main"), template = make("template");
    template.innerHTML = html;
    for (const details of template.content.querySelectorAll("details")) {
      const old = [...main.querySelectorAll("details")].find((one) => one.firstChild.textContent === details.firstChild.textContent);
      if (old) details.open = old.open;
    }
    const parts = (root) => {
      const all = [...root.children], at = all.findIndex((node) => node.id === "cards");
      return [all.slice(0, at), all.slice(at + 1)];
    };
    const after = parts(template.content);
    parts(main).forEach((old, side) => {
      const next = after[side];
      for (let i = 0; i < Math.max(old.length, next.length); i++) {
        if (!old[i]) main.insertBefore(next[i], side ? null : document.getElementById("cards"));
        else if (!next[i]) old[i].remove();
        else if (!old[i].isEqualNode(next[i])) {
          const across = old[i].scrollLeft;
          old[i].replaceWith(next[i]);
          next[i].scrollLeft = across;
        }
      }
    });
  }

  const key = (node) => node && (node.tagName === "SUMMARY" ? node.textContent : node.dataset.key);

  /* New numbers in the same page. */
  function update(news) {
    const focus = key(document.activeElement), off = new Set([...hidden].map((method) => data.methods[method].label));
    data = news.data;
    hidden.clear();
    data.methods.forEach((style, method) => { if (off.has(style.label)) hidden.add(method); });
    retell(news.body);
    build();
    tell();
    if (focus && key(document.activeElement) !== focus) {
      const again = [...document.querySelectorAll("summary, [data-key]")].find((node) => key(node) === focus);
      if (again) again.focus({ preventScroll: true });
    }
  }

  /* How far the runs are, and how long they still take. */
  const long = (seconds) => {
    if (seconds < 90) return Math.max(1, Math.round(seconds)) + " s";
    if (seconds < 5400) return Math.round(seconds / 60) + " min";
    return (seconds / 3600).toFixed(1) + " h";
  };
  function tell() {
    const node = document.getElementById("progress"), now = data.progress;
    if (!now) return node.replaceChildren();
    const lines = [], paces = now.open.map((run) => run.pace).filter((pace) => pace !== null);
    let left = 0, done = now.ended;
    for (const run of now.open) {
      const silent = Math.max(0, (Date.now() - run.written) / 1000), pace = run.pace ?? 0;
      const rest = Math.max(0, pace * (run.rounds - run.round) - Math.min(silent, pace));
      left = Math.max(left, rest);
      done += run.rounds ? run.round / run.rounds : 0;
      const lost = silent > Math.max(120, 20 * pace);
      const said = lost ? `no new round for ${long(silent)}: it may have been stopped` : run.round ? `about ${long(rest)} left` : "it has just begun";
      lines.push(`${run.title}, seed ${run.seed}: round ${run.round} of ${run.rounds}, ${said}`);
    }
    const runs = now.planned, more = runs - now.ended - now.open.length;
    if (runs > 1) {
      const pace = paces.length ? paces.reduce((a, b) => a + b) / paces.length : null, rounds = now.open.length ? now.open[0].rounds : 0;
      const whole = pace !== null && more > 0 ? `; about ${long(left + (more * pace * rounds) / now.open.length)} left for all` : "";
      lines.unshift(now.open.length || more > 0 ? `${now.ended} of ${runs} runs finished${whole}` : `All ${runs} runs are finished`);
    } else if (!now.open.length) lines.push("The run is finished");
    const shown = make("i", { style: `width:${Math.min(100, (100 * done) / Math.max(1, runs)).toFixed(1)}%` });
    node.replaceChildren(...lines.slice(0, 8).map((line) => make("p", {}, line)), make("div", { class: "bar" }, shown));
  }
  tell();
  if (data.live) {
    setInterval(tell, 1000);
    const state = document.getElementById("state");
    let version = null;
    const ask = async () => {
      try {
        const answer = await fetch("data?version=" + (version ?? ""), { cache: "no-store" });
        if (answer.status === 200) {
          const news = await answer.json();
          version = news.version;
          update(news);
        }
        state.textContent = "live";
      } catch (error) {
        state.textContent = "the server has stopped; this is the last state";
      }
      setTimeout(ask, 2000);
    };
    ask();
  }
})();
