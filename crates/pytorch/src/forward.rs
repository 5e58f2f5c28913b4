//! The forward pass, one line per layer.

use std::fmt::Write as _;

use fedelity_nn::{ActivationShape, Layer, Node, Window};

use crate::error::PyTorchError;
use crate::helpers::block_class;
use crate::modules::Modules;

/// The lines so far.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    pub(crate) text: String,
    /// Residual layers so far, for the names of their values.
    residuals: usize,
    /// Whether the first layer works on an image, not on a row.
    on_image: Option<bool>,
}

impl Forward {
    /// Whether the first layer needs the shape of an image.
    pub(crate) fn starts_on_image(&self) -> bool {
        self.on_image == Some(true)
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "        {line}");
    }

    /// Adds a layer that changes the value `v`, whose shape is `x`. Returns the new shape.
    pub(crate) fn layer(
        &mut self,
        node: &Node,
        x: ActivationShape,
        v: &str,
        modules: &mut Modules,
    ) -> Result<ActivationShape, PyTorchError> {
        let y = node.layer.output(x).map_err(|misfit| PyTorchError::Layer { layer: node.name.clone(), misfit })?;
        self.on_image.get_or_insert(node.layer != Layer::Flatten);
        let (channels, width) = match x {
            ActivationShape::Image { channels, .. } => (channels, 0),
            ActivationShape::Tokens { width, .. } | ActivationShape::Row { width } => (0, width),
            ActivationShape::Ids { .. } => (0, 0),
        };
        let module = |modules: &mut Modules, module: String| modules.add(&node.name, module);
        match &node.layer {
            Layer::Conv { out, kernel, stride, pad, bias } => {
                let mut text = format!("nn.Conv2d({channels}, {out}, {kernel}");
                if *stride != 1 {
                    let _ = write!(text, ", stride={stride}");
                }
                if *pad != 0 {
                    let _ = write!(text, ", padding={pad}");
                }
                text.push_str(if *bias { ")" } else { ", bias=False)" });
                self.call(v, &module(modules, text));
            }
            Layer::Dense { out } => self.call(v, &module(modules, format!("nn.Linear({width}, {out})"))),
            Layer::GroupNorm { channels_per_group } => {
                let groups = channels / channels_per_group;
                self.call(v, &module(modules, format!("nn.GroupNorm({groups}, {channels})")));
            }
            Layer::BatchNorm => self.call(v, &module(modules, format!("nn.BatchNorm2d({channels})"))),
            Layer::Relu => self.line(&format!("{v} = F.relu({v})")),
            Layer::MaxPool(window) => self.line(&format!("{v} = F.max_pool2d({v}, {})", arguments(*window))),
            Layer::AveragePool(window) => self.line(&format!("{v} = F.avg_pool2d({v}, {})", arguments(*window))),
            Layer::GlobalAveragePool => self.line(&format!("{v} = {v}.mean(dim=(2, 3), keepdim=True)")),
            Layer::Dropout { p } => self.line(&format!("{v} = F.dropout({v}, {p:?}, self.training)")),
            Layer::Flatten => self.line(&format!("{v} = torch.flatten({v}, 1)")),
            Layer::Embedding { width } => {
                let rows = vocabulary(x);
                let embedding = module(modules, format!("nn.Embedding({rows}, {width})"));
                self.line(&format!("{v} = {embedding}(input_ids)"));
            }
            Layer::Embeddings { width, positions, types, eps, dropout } => {
                let rows = vocabulary(x);
                let text = format!("Embeddings({rows}, {positions}, {types}, {width}, {eps:?}, {dropout:?})");
                let embeddings = module(modules, text);
                self.line(&format!("{v} = {embeddings}(input_ids)"));
            }
            Layer::Block { heads, hidden, eps, dropout, attention_dropout, names } => {
                let class = block_class(*names);
                let text = format!("{class}({width}, {heads}, {hidden}, {eps:?}, {dropout:?}, {attention_dropout:?})");
                let block = module(modules, text);
                self.line(&format!("{v} = {block}({v}, padding)"));
            }
            Layer::FirstToken => self.line(&format!("{v} = {v}[:, 0]")),
            Layer::Lstm { hidden } => {
                let lstm = module(modules, format!("nn.LSTM({width}, {hidden}, batch_first=True)"));
                self.line(&format!("{v}, _ = {lstm}({v})"));
                self.line("# The hidden state at the last token of each text.");
                let index = format!("torch.arange({v}.shape[0], device={v}.device), attention_mask.sum(1) - 1");
                self.line(&format!("{v} = {v}[{index}]"));
            }
            Layer::Residual { body, shortcut } => self.residual((body, shortcut), x, v, modules)?,
        }
        Ok(y)
    }

    fn call(&mut self, v: &str, module: &str) {
        self.line(&format!("{v} = {module}({v})"));
    }

    /// The two paths on values of their own, then their sum.
    fn residual(
        &mut self,
        (body, shortcut): (&[Node], &[Node]),
        x: ActivationShape,
        v: &str,
        modules: &mut Modules,
    ) -> Result<(), PyTorchError> {
        self.residuals += 1;
        let names = [format!("body{}", self.residuals), format!("shortcut{}", self.residuals)];
        for (name, nodes) in names.iter().zip([body, shortcut]) {
            self.line(&format!("{name} = {v}"));
            let mut at = x;
            for node in nodes {
                at = self.layer(node, at, name, modules)?;
            }
        }
        let [body, shortcut] = names;
        self.line(&format!("{v} = {body} + {shortcut}"));
        Ok(())
    }
}

fn arguments(window: Window) -> String {
    let Window { kernel, stride, pad } = window;
    format!("{kernel}, stride={stride}, padding={pad}")
}

/// The number of tokens that an embedding knows.
fn vocabulary(x: ActivationShape) -> usize {
    match x {
        ActivationShape::Ids { vocabulary, .. } => vocabulary,
        ActivationShape::Image { .. } | ActivationShape::Tokens { .. } | ActivationShape::Row { .. } => 0,
    }
}
