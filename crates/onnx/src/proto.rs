//! The part of ONNX's file format (onnx.proto) that is written here.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelProto {
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<Property>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperatorSet {
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Property {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    #[prost(int32, optional, tag = "20")]
    pub kind: Option<i32>,
}

impl Attribute {
    pub(crate) fn float(name: &str, value: f32) -> Self {
        Self { name: Some(name.to_owned()), f: Some(value), kind: Some(1), ..Self::default() }
    }

    pub(crate) fn int(name: &str, value: i64) -> Self {
        Self { name: Some(name.to_owned()), i: Some(value), kind: Some(2), ..Self::default() }
    }

    pub(crate) fn ints(name: &str, values: &[i64]) -> Self {
        Self { name: Some(name.to_owned()), ints: values.to_vec(), kind: Some(7), ..Self::default() }
    }
}

/// The type of single-precision numbers.
const FLOAT: i32 = 1;
/// The type of 64-bit integers.
const INT64: i32 = 7;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
}

impl TensorProto {
    pub(crate) fn floats(name: &str, shape: &[usize], values: impl Iterator<Item = f32>) -> Self {
        Self::new(name, shape, FLOAT, values.flat_map(f32::to_le_bytes).collect())
    }

    pub(crate) fn ints(name: &str, shape: &[usize], values: &[i64]) -> Self {
        Self::new(name, shape, INT64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn new(name: &str, shape: &[usize], kind: i32, bytes: Vec<u8>) -> Self {
        let dims = shape.iter().map(|&side| side as i64).collect();
        Self { dims, data_type: Some(kind), name: Some(name.to_owned()), raw_data: Some(bytes) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueInfo {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<TypeProto>,
}

impl ValueInfo {
    /// A batch of numbers of this shape.
    pub(crate) fn floats(name: &str, sides: &[usize]) -> Self {
        let side = |&side: &usize| Dimension { value: Some(side as i64), param: None };
        let batch = Dimension { value: None, param: Some("batch".to_owned()) };
        Self::new(name, FLOAT, [batch].into_iter().chain(sides.iter().map(side)).collect())
    }

    /// Token IDs, with axes of any length.
    pub(crate) fn ids(name: &str, axes: &[&str]) -> Self {
        let axis = |name: &&str| Dimension { value: None, param: Some((*name).to_owned()) };
        Self::new(name, INT64, axes.iter().map(axis).collect())
    }

    fn new(name: &str, kind: i32, dim: Vec<Dimension>) -> Self {
        let tensor = TensorType { elem_type: Some(kind), shape: Some(TensorShape { dim }) };
        Self { name: Some(name.to_owned()), kind: Some(TypeProto { tensor_type: Some(tensor) }) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorType {
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShape>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorShape {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub param: Option<String>,
}
