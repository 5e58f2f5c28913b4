export { init, use, graphic } from "echarts/core";
import { use } from "echarts/core";
import { LineChart, HeatmapChart, ScatterChart, CustomChart } from "echarts/charts";
import { GridComponent, TooltipComponent, GraphicComponent, AxisPointerComponent, AriaComponent } from "echarts/components";
import { SVGRenderer, CanvasRenderer } from "echarts/renderers";
use([LineChart, HeatmapChart, ScatterChart, CustomChart, GridComponent, TooltipComponent, GraphicComponent, AxisPointerComponent, AriaComponent, SVGRenderer, CanvasRenderer]);
