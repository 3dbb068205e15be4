//! Models of PyTorch: read, lifted, written as source, and their memory predicted.

use super::{READ, archive, write};
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use gpumem_import::model::Model;
use gpumem_import::torch::{Request, predict};
use gpumem_import::tree::{Network, Options, parts};
use zip::CompressionMethod;

/// Reads a `.pt2` file. After an odd first byte, the input is the document of the program alone, and the target adds the archive around it.
pub fn pt2(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let file = if kind & 1 == 0 { rest.to_vec() } else { packed(rest) };
    model(&file);
}

/// Reads an ONNX file, for training or for inference.
pub fn onnx(data: &[u8]) {
    model(data);
}

/// Returns an archive of a document.
pub fn packed(document: &[u8]) -> Vec<u8> {
    archive(CompressionMethod::Stored, &[("m/models/model.json", document), ("m/byteorder", b"little")])
}

fn model(file: &[u8]) {
    let path = write("model", file);
    for is_for_inference in [false, true] {
        if let Ok(model) = gpumem_import::open(&path, is_for_inference) {
            used(&model);
        }
    }
}

/// Does with a model what the command does.
fn used(model: &Model) {
    READ.set(READ.get() + 1);
    let options =
        Options { name: "model.pt2".into(), batch: 8, optimizer: "AdamW {}".into(), loss: None, fields: Vec::new() };
    if let Some(batch) = Batch::follow(model) {
        let lifted = lift(model, &batch);
        if let Ok(network) = Network::new(model, &batch, &lifted, &options) {
            let _ = gpumem_language::source::resolve(&network.to_string());
        }
        let _ = parts(model, &batch, &lifted, &options);
    }
    for batch in [None, Some(3)] {
        if let Ok(report) = predict(model, &Request { batch, partial: true, ..Request::default() }) {
            assert!(report.at_least <= report.allocated, "{} of {}", report.at_least, report.allocated);
            assert!(report.reserved(false, None).reserved >= report.allocated);
        }
    }
}
