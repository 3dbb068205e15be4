//! Language models whose last matrix is their table.

use super::super::super::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, attribute_proto::AttributeType, tensor_shape_proto, type_proto,
};
use crate::Onnx;
use crate::batch::Batch;
use crate::lift::lift;
use prost::Message;
use std::io::Cursor;
use std::path::Path;

const ROWS: u64 = 128;
const WIDTH: u64 = 64;

fn number(row: u64, column: u64) -> f32 {
    ((row * 7919 + column * 104_729) % 100_003) as f32 / 1e5
}

/// Returns a matrix of `sizes`, whose elements are those of a table of `ROWS` by `WIDTH`.
fn matrix(name: &str, sizes: [u64; 2], of: impl Fn(u64, u64) -> f32) -> TensorProto {
    let elements = (0..sizes[0]).flat_map(|row| (0..sizes[1]).map(move |column| (row, column)));
    let bytes: Vec<u8> = elements.flat_map(|(row, column)| of(row, column).to_le_bytes()).collect();
    TensorProto {
        name: Some(name.into()),
        data_type: Some(1),
        dims: sizes.map(|size| size as i64).to_vec(),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        name: Some(format!("/{output}/{op}")),
        input: inputs.iter().map(|input| (*input).into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

fn transposed(input: &str, output: &str) -> NodeProto {
    let perm = AttributeProto {
        name: Some("perm".into()),
        r#type: Some(AttributeType::Ints as i32),
        ints: vec![1, 0],
        ..AttributeProto::default()
    };
    NodeProto { attribute: vec![perm], ..node("Transpose", &[input], output) }
}

fn value(name: &str, kind: i32, sizes: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let batch = Value::DimParam("batch".into());
    let sizes = [batch].into_iter().chain(sizes.iter().map(|&size| Value::DimValue(size)));
    let dim = sizes.map(|value| Dimension { value: Some(value), ..Dimension::default() }).collect();
    let tensor = type_proto::Tensor { elem_type: Some(kind), shape: Some(TensorShapeProto { dim }) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..ValueInfoProto::default() }
}

/// Reads a model of a table and these operations after it.
fn model(initializer: Vec<TensorProto>, after: Vec<NodeProto>) -> Onnx {
    let nodes = [vec![node("Gather", &["wte.weight", "tokens"], "rows"), node("Tanh", &["rows"], "inner")], after];
    let graph = GraphProto {
        name: Some("language_model".into()),
        node: nodes.concat(),
        initializer,
        input: vec![value("tokens", 7, &[6])],
        output: vec![value("logits", 1, &[6, ROWS as i64])],
        ..GraphProto::default()
    };
    let document = ModelProto {
        ir_version: Some(9),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(20) }],
        graph: Some(graph),
        ..ModelProto::default()
    };
    let bytes = document.encode_to_vec();
    let length = bytes.len() as u64;
    Onnx::from_reader(Cursor::new(bytes), length, Path::new("model.onnx")).unwrap()
}

/// Checks that the model has its table once, as PyTorch counts it, and that the last layer is tied to it.
#[track_caller]
fn has_one_matrix(file: &Onnx) {
    let model = file.model(Some(3), &[]).unwrap();
    assert_eq!(model.parameters(), ROWS * WIDTH);
    let batch = Batch::follow(&model).unwrap();
    let kinds: Vec<&str> = lift(&model, &batch).layers.iter().map(|layer| layer.kind).collect();
    assert_eq!(kinds, ["Embedding", "Tanh", "Tied"]);
    let weights = file.weights(&[]).unwrap();
    assert_eq!(weights.iter().map(|weight| &weight.key[..]).collect::<Vec<_>>(), ["wte.weight"]);
}

#[test]
fn a_table_that_is_read_twice_is_tied() {
    let after = vec![transposed("wte.weight", "turned"), node("MatMul", &["inner", "turned"], "logits")];
    has_one_matrix(&model(vec![matrix("wte.weight", [ROWS, WIDTH], number)], after));
}

#[test]
fn a_table_that_is_stored_twice_is_tied() {
    let table = || matrix("wte.weight", [ROWS, WIDTH], number);
    let turned = matrix("onnx::MatMul_9", [WIDTH, ROWS], |row, column| number(column, row));
    has_one_matrix(&model(vec![table(), turned], vec![node("MatMul", &["inner", "onnx::MatMul_9"], "logits")]));
    let copy = matrix("lm_head.weight", [ROWS, WIDTH], number);
    let after = || vec![transposed("lm_head.weight", "turned"), node("MatMul", &["inner", "turned"], "logits")];
    has_one_matrix(&model(vec![table(), copy], after()));
    // Other numbers are another parameter.
    let other = matrix("lm_head.weight", [ROWS, WIDTH], |row, column| number(row, column) + f32::from(row == 127));
    let found = model(vec![table(), other], after()).model(Some(3), &[]).unwrap();
    assert_eq!(found.parameters(), 2 * ROWS * WIDTH);
}

/// A second table of the same numbers, such as that of a teacher, is a parameter of its own.
#[test]
fn copies_of_tables_stay_apart() {
    let tables = ["wte.weight", "teacher.weight"].map(|name| matrix(name, [ROWS, WIDTH], number));
    let head = matrix("head.weight", [ROWS, WIDTH], |row, column| 1.0 - number(row, column));
    let after = vec![
        node("Gather", &["teacher.weight", "tokens"], "others"),
        node("Add", &["inner", "others"], "sum"),
        transposed("head.weight", "turned"),
        node("MatMul", &["sum", "turned"], "logits"),
    ];
    let found = model([&tables[..], &[head]].concat(), after).model(Some(3), &[]).unwrap();
    assert_eq!(found.parameters(), 3 * ROWS * WIDTH);
}
