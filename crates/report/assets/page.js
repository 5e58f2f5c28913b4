"use strict";
(function () {
  let data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = {};
  let charts = [];
  const shades = ["#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725"];

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
  const ink = { "--ground": "#fff", "--text": "#000", "--faint": "#444", "--line": "#ccc" };
  const variable = (name) => (paper ? ink[name] : getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => "&#" + c.charCodeAt(0) + ";");
  const number = (value, percent) => {
    if (value === null || value === undefined) return "-";
    if (percent) return (100 * value).toFixed(2) + " %";
    return Number.isInteger(value) ? String(value) : Number(value.toPrecision(5)).toString();
  };
  const name = (series) => data.methods[series.method].label + (series.part ? ", " + series.part : "");

  function axes() {
    const faint = variable("--faint"), line = variable("--line");
    return {
      axisLabel: { color: faint, hideOverlap: true }, nameTextStyle: { color: faint },
      axisLine: { lineStyle: { color: faint } }, splitLine: { lineStyle: { color: line } },
    };
  }

  function box() {
    return {
      backgroundColor: variable("--ground"), borderColor: variable("--line"), confine: true,
      textStyle: { color: variable("--text"), fontSize: 12 },
    };
  }

  function lines(figure) {
    const text = axes(), shown = figure.series.filter((series) => !hidden.has(series.method));
    const scale = figure.percent ? 100 : 1;
    const series = [];
    const single = shown.every((one) => one.points.length < 2);
    for (const one of shown) {
      const style = data.methods[one.method];
      const opacity = one.faint ? (dark.matches ? 0.6 : 0.45) : 1;
      if (!one.faint && one.points.some((p) => p[2] < p[3])) {
        series.push({
          type: "custom", silent: true, name: name(one) + " (band)", tooltip: { show: false }, z: 1,
          /* The axis makes room for the ends of the band; the first of them draws all of it. */
          data: [Math.min(...one.points.map((p) => p[2])), Math.max(...one.points.map((p) => p[3]))].map((end) => [one.points[0][0], end * scale]),
          clip: true,
          renderItem: (parameters, api) => parameters.dataIndex > 0 ? null : ({
            type: "polygon", silent: true,
            shape: {
              points: one.points.map((p) => api.coord([p[0], p[3] * scale]))
                .concat(one.points.slice().reverse().map((p) => api.coord([p[0], p[2] * scale]))),
            },
            style: { fill: style.colour, opacity: shown.length > 8 ? 0.06 : 0.15 },
          }),
        });
      }
      series.push({
        type: "line", name: name(one), z: 3, showSymbol: single || one.points.length < 2, symbolSize: 6,
        data: one.points.map((p) => [p[0], p[1] * scale]),
        lineStyle: { color: style.colour, width: 2, opacity, type: style.dash.length ? style.dash : "solid" },
        itemStyle: { color: style.colour, opacity }, emphasis: { disabled: true },
      });
    }
    const whole = figure.x === "round";
    return {
      animation: false, grid: { left: 12, right: 18, top: 34, bottom: 30, containLabel: true },
      tooltip: {
        ...box(), trigger: "axis", axisPointer: { type: "line" }, order: "valueDesc",
        formatter: (items) => {
          if (!items.length) return "";
          const rows = items.filter((item) => item.seriesType === "line").map((item) => {
            const one = shown.find((series) => name(series) === item.seriesName);
            const point = one && one.points.find((p) => p[0] === item.value[0]);
            const sd = point && point[3] > point[1] ? " ± " + number(point[3] - point[1], figure.percent) : "";
            return `<tr><td>${item.marker}${escape(item.seriesName)}</td><td style="text-align:right;padding-left:10px">${number(item.value[1] / scale, figure.percent)}${sd}</td></tr>`;
          });
          return `${escape(figure.x)} ${number(items[0].value[0])}<table>${rows.join("")}</table>`;
        },
      },
      xAxis: {
        type: "value", name: figure.x, nameLocation: "middle", nameGap: 26, scale: true, minInterval: whole ? 1 : 0,
        ...text, splitLine: { show: false },
        min: !whole ? 0 : single ? undefined : "dataMin", max: !whole || single ? undefined : "dataMax",
      },
      yAxis: {
        type: "value", name: figure.y + (figure.percent ? " (%)" : ""), nameLocation: "end", scale: true, ...text,
        nameTextStyle: { ...text.nameTextStyle, align: "left" },
      },
      series,
    };
  }

  function heat(figure) {
    const text = axes(), cells = [];
    figure.cells.forEach((row, y) => row.forEach((value, x) => cells.push([x, y, value === null ? "-" : value])));
    const labelled = figure.columns.length <= 12 && figure.rows.length <= 12 && figure.y !== "client";
    const long = figure.columns.some((column) => column.length > 4);
    return {
      animation: false,
      grid: { left: 8, right: 58, top: 12, bottom: 30, containLabel: true },
      tooltip: {
        ...box(),
        formatter: (item) => `${escape(figure.y)} ${escape(figure.rows[item.value[1]])}<br>${escape(figure.x)} ${escape(figure.columns[item.value[0]])}<br><b>${item.value[2] === "-" ? "-" : number(item.value[2], figure.percent)}</b>`,
      },
      xAxis: {
        type: "category", data: figure.columns, name: figure.x, nameLocation: "middle", nameGap: long ? 58 : 26,
        ...text, splitLine: { show: false }, axisTick: { show: false },
        axisLabel: { ...text.axisLabel, rotate: long ? 60 : 0, width: 70, overflow: "truncate", fontSize: 11 },
      },
      yAxis: {
        type: "category", data: figure.rows, inverse: true, ...text, splitLine: { show: false }, axisTick: { show: false },
        axisLabel: { ...text.axisLabel, width: 90, overflow: "truncate", fontSize: 11 },
      },
      visualMap: {
        type: "continuous", min: 0, max: figure.high || 1, calculable: false, orient: "vertical", right: 0, top: "middle",
        itemWidth: 10, itemHeight: 160, inRange: { color: shades }, textStyle: { color: text.axisLabel.color, fontSize: 10 },
        text: [number(figure.high, figure.percent).replace(".00", ""), "0"],
      },
      series: [{
        type: "heatmap", data: cells, progressive: 0,
        label: {
          show: labelled, fontSize: 9,
          formatter: (item) => (item.value[2] === "-" || item.value[2] < 0.005 ? "" : Math.round(100 * item.value[2])),
        },
        emphasis: { itemStyle: { borderColor: variable("--text"), borderWidth: 1 } },
      }],
    };
  }

  const hue = (k, n) => `hsl(${Math.round((360 * k) / Math.max(n, 1))} 75% ${k % 2 ? 38 : 52}%)`;

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
        itemStyle: { color: hue(k, figure.classes.length), opacity: 0.8 },
      })),
    };
  }

  function classes(figure, at) {
    const text = axes();
    const series = figure.series.map((rounds, method) => ({ rounds, method })).filter((one) => !hidden.has(one.method));
    return {
      animation: false, grid: { left: 12, right: 18, top: 34, bottom: 30, containLabel: true },
      tooltip: { ...box(), trigger: "axis", order: "valueDesc", valueFormatter: (value) => (value === null || value === undefined ? "-" : value.toFixed(2) + " %") },
      xAxis: {
        type: "category", data: figure.classes, ...text, splitLine: { show: false },
        axisLabel: { ...text.axisLabel, rotate: figure.classes.some((c) => c.length > 4) ? 40 : 0, width: 90, overflow: "truncate" },
      },
      yAxis: { type: "value", min: 0, max: 100, name: "accuracy (%)", ...text, nameTextStyle: { ...text.nameTextStyle, align: "left" } },
      series: series.map((one) => {
        const style = data.methods[one.method];
        return {
          type: "line", name: style.label, symbolSize: 8, data: one.rounds[at].map((v) => (v === null ? null : 100 * v)),
          lineStyle: { color: style.colour, width: 1.5, opacity: 0.6, type: style.dash.length ? style.dash : "solid" },
          itemStyle: { color: style.colour }, emphasis: { disabled: true },
        };
      }),
    };
  }

  function option(figure) {
    switch (figure.kind) {
      case "lines": return lines(figure);
      case "heat": return heat(figure);
      case "points": return points(figure);
      default: return classes(figure, Math.min(chosen[figure.id + "/round"] ?? Infinity, figure.rounds.length - 1));
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(charts.find((chart) => chart.node === entry.target));
  }, { rootMargin: "300px" });

  function draw(chart) {
    if (!chart) return;
    if (!chart.instance) {
      const renderer = chart.figure.kind === "heat" ? "canvas" : "svg";
      chart.instance = echarts.init(chart.node, null, { renderer });
      new ResizeObserver(() => { if (chart.node.isConnected && !chart.instance.isDisposed()) chart.instance.resize(); }).observe(chart.node);
    }
    chart.instance.setOption(option(chart.figure), { notMerge: true });
    chart.node.dataset.drawn = "yes";
  }

  function plot(figure) {
    const node = make("div", { class: figure.kind === "heat" ? "chart heat" : "chart", "data-figure": figure.id, role: "img", "aria-label": figure.title });
    charts.push({ node, figure, instance: null });
    seen.observe(node);
    return node;
  }

  function forget(node) {
    for (const chart of charts.filter((chart) => node.contains(chart.node))) {
      seen.unobserve(chart.node);
      if (chart.instance) chart.instance.dispose();
    }
    charts = charts.filter((chart) => !node.contains(chart.node));
    node.replaceChildren();
  }

  const FEW = 6;

  function fillCard(card, body) {
    forget(body);
    if (!card.choice) {
      const wanted = card.figures.filter((figure) => figure.method === null || !hidden.has(figure.method));
      const all = chosen[card.id + "/all"];
      const large = card.figures.some((figure) => figure.kind === "heat" && figure.rows.length > 20);
      const panels = make("div", { class: large ? "panels large" : "panels" });
      const shown = all ? wanted : wanted.slice(0, FEW);
      for (const figure of shown) panels.append(make("figure", {}, make("figcaption", {}, figure.title), plot(figure)));
      if (card.figures[0].kind === "points") {
        const names = card.figures[0].classes;
        const legend = make("div", { class: "legend" });
        names.forEach((label, k) => legend.append(make("span", {}, make("i", { style: "background:" + hue(k, names.length) }), label)));
        body.append(legend);
      }
      body.append(panels);
      if (wanted.length > FEW) {
        const label = all ? "Show fewer" : `Show all ${wanted.length}`;
        body.append(make("div", { class: "tools" }, make("button", { onclick: () => { chosen[card.id + "/all"] = !all; fillCard(card, body); } }, label)));
      }
      return;
    }
    const at = Math.min(chosen[card.id] || 0, card.figures.length - 1);
    const figure = card.figures[at];
    if (card.figures.length > 1) {
      const select = make("select", { "aria-label": card.title, onchange: (event) => { chosen[card.id] = event.target.selectedIndex; fillCard(card, body); } });
      card.figures.forEach((one, i) => select.append(make("option", i === at ? { selected: "" } : {}, one.title)));
      body.append(make("div", { class: "tools" }, select));
    }
    const node = plot(figure);
    if (figure.kind === "classes") {
      const key = figure.id + "/round", last = figure.rounds.length - 1;
      const place = Math.min(chosen[key] ?? last, last);
      const label = make("span", {}, "round " + figure.rounds[place]);
      const slider = make("input", {
        type: "range", min: 0, max: last, value: place, "aria-label": "round",
        oninput: (event) => {
          chosen[key] = Number(event.target.value);
          label.textContent = "round " + figure.rounds[chosen[key]];
          draw(charts.find((chart) => chart.node === node));
        },
      });
      body.append(make("div", { class: "tools" }, ...(last > 0 ? [slider] : []), label));
    }
    if (figure.kind === "heat") node.style.height = Math.max(300, Math.min(900, 90 + 18 * figure.rows.length)) + "px";
    body.append(node);
  }

  function legend() {
    const place = document.getElementById("methods");
    place.replaceChildren();
    data.methods.forEach((style, method) => {
      const dash = style.dash.length ? style.dash.join(" ") : "none";
      const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      line.setAttribute("width", "26");
      line.setAttribute("height", "8");
      const path = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [key, value] of Object.entries({ x1: 0, x2: 26, y1: 4, y2: 4, stroke: style.colour, "stroke-width": 3, "stroke-dasharray": dash })) path.setAttribute(key, value);
      line.append(path);
      place.append(make("button", {
        "aria-pressed": hidden.has(method) ? "false" : "true", title: "Show or hide",
        onclick: () => {
          if (hidden.has(method)) hidden.delete(method); else hidden.add(method);
          legend();
          refresh();
        },
      }, line, style.label));
    });
    if (data.methods.length > 2) {
      const any = hidden.size > 0;
      place.append(make("button", {
        onclick: () => {
          if (any) hidden.clear(); else data.methods.forEach((_, method) => hidden.add(method));
          legend();
          refresh();
        },
      }, any ? "Show all" : "Hide all"));
    }
  }

  /* Methods or colours changed: what is drawn is drawn again, panels of methods come and go. */
  function refresh() {
    data.cards.forEach((card, i) => { if (!card.choice) fillCard(card, document.getElementById("cards").children[i].lastElementChild); });
    for (const chart of charts) if (chart.instance) draw(chart);
  }

  function build() {
    const place = document.getElementById("cards");
    legend();
    place.replaceChildren();
    for (const card of data.cards) {
      const body = make("div", {});
      place.append(make("section", { id: "card-" + card.id }, make("h2", {}, card.title), make("p", { class: "text" }, card.text), body));
      fillCard(card, body);
    }
  }

  build();
  dark.addEventListener("change", () => { for (const chart of charts) if (chart.instance) draw(chart); });
  /* Browsers print canvases badly, and the window is not as wide as the paper: there, other drawings take their place. */
  const untwin = () => document.querySelectorAll(".twin").forEach((twin) => twin.remove());
  addEventListener("beforeprint", () => {
    paper = true;
    untwin();
    for (const chart of charts) {
      const panels = chart.node.closest(".panels:not(.large)");
      const width = panels && panels.children.length > 1 ? 340 : 700;
      const twin = echarts.init(null, null, { renderer: "svg", ssr: true, width, height: chart.node.clientHeight });
      twin.setOption(option(chart.figure));
      const node = make("div", { class: "twin" });
      node.innerHTML = twin.renderToSVGString();
      twin.dispose();
      chart.node.after(node);
    }
  });
  addEventListener("afterprint", () => {
    paper = false;
    untwin();
    for (const chart of charts) if (chart.instance) draw(chart);
  });

  /* For tests: draws everything, and what the figures hold. */
  window.fedelity = {
    drawAll: () => charts.forEach((chart) => { draw(chart); chart.instance.resize(); }),
    series: (id) => {
      const chart = charts.find((one) => one.figure.id === id);
      draw(chart);
      return chart.instance.getOption().series.filter((one) => one.type !== "custom").map((one) => ({ name: one.name, data: one.data }));
    },
  };

  if (data.live) {
    const state = document.getElementById("state");
    let version = null;
    const ask = async () => {
      try {
        const answer = await fetch("data?version=" + (version ?? ""), { cache: "no-store" });
        if (answer.status === 200) {
          const news = await answer.json();
          version = news.version;
          const scroll = window.scrollY;
          for (const chart of charts) { seen.unobserve(chart.node); if (chart.instance) chart.instance.dispose(); }
          charts = [];
          document.getElementById("main").innerHTML = news.body;
          data = news.data;
          build();
          window.scrollTo(0, scroll);
        }
        state.textContent = "live";
      } catch (error) {
        state.textContent = "the run's server has ended; this is the last state";
      }
      setTimeout(ask, 2000);
    };
    ask();
  }
})();
