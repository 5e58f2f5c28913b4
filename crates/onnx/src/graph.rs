//! A graph of operators, built from the inputs onwards.

use fedelity_nn::{Layout, Tensor};

use crate::error::OnnxError;
use crate::proto::{Attribute, GraphProto, NodeProto, TensorProto, ValueInfo};

/// Operators and constants so far.
pub(crate) struct Graph<'a> {
    layout: &'a Layout,
    params: &'a [f32],
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(layout: &'a Layout, params: &'a [f32]) -> Self {
        Self { layout, params, nodes: Vec::new(), initializers: Vec::new() }
    }

    /// Adds an operator. Its only output gets a unique name, which is returned.
    pub(crate) fn node(&mut self, op: &str, inputs: &[&str], attributes: Vec<Attribute>) -> String {
        let output = format!("{}_{}", op.to_lowercase(), self.nodes.len());
        self.node_to(op, inputs, &[&output], attributes);
        output
    }

    /// Adds an operator with these outputs; an empty name is an unused output.
    pub(crate) fn node_to(&mut self, op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<Attribute>) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.nodes.push(NodeProto {
            input: names(inputs),
            output: names(outputs),
            name: Some(format!("{op}_{}", self.nodes.len())),
            op_type: Some(op.to_owned()),
            attribute,
        });
    }

    fn tensor(&self, name: &str) -> Result<(&'a Tensor, &'a [f32]), OnnxError> {
        let found = self.layout.tensors().iter().find(|tensor| tensor.name == name);
        let tensor = found.ok_or_else(|| OnnxError::Missing { name: name.to_owned() })?;
        let values = self.params.get(tensor.range()).ok_or_else(|| OnnxError::Missing { name: name.to_owned() })?;
        Ok((tensor, values))
    }

    /// A weight, unchanged.
    pub(crate) fn weight(&mut self, name: &str) -> Result<String, OnnxError> {
        let (tensor, values) = self.tensor(name)?;
        self.initializers.push(TensorProto::floats(name, &tensor.shape, values.iter().copied()));
        Ok(name.to_owned())
    }

    /// A weight in another shape; `from` maps each new position to its old one.
    pub(crate) fn weight_as(
        &mut self,
        name: &str,
        shape: &[usize],
        from: impl Fn(usize) -> usize,
    ) -> Result<String, OnnxError> {
        let (_, values) = self.tensor(name)?;
        let places = 0..shape.iter().product();
        self.initializers.push(TensorProto::floats(name, shape, places.map(|i| values[from(i)])));
        Ok(name.to_owned())
    }

    /// The values of a weight.
    pub(crate) fn values(&self, name: &str) -> Result<&'a [f32], OnnxError> {
        Ok(self.tensor(name)?.1)
    }

    pub(crate) fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        let name = format!("{name}_{}", self.initializers.len());
        self.initializers.push(TensorProto::floats(&name, shape, values.iter().copied()));
        name
    }

    /// A list of integers; with an empty `shape`, a single one.
    pub(crate) fn ints(&mut self, name: &str, shape: &[usize], values: &[i64]) -> String {
        let name = format!("{name}_{}", self.initializers.len());
        self.initializers.push(TensorProto::ints(&name, shape, values));
        name
    }

    /// Gives a value another name.
    pub(crate) fn name_output(&mut self, from: &str, to: &str) {
        for name in self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
            if name == from {
                to.clone_into(name);
            }
        }
    }

    pub(crate) fn finish(self, name: &str, input: Vec<ValueInfo>, output: Vec<ValueInfo>) -> GraphProto {
        GraphProto { node: self.nodes, name: Some(name.to_owned()), initializer: self.initializers, input, output }
    }
}
