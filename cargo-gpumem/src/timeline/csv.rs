//! The tensors of a step as comma-separated values, for spreadsheets.

use super::step::PlacedStep;

const HEADING: &str = "tensor,category,layer,shape,bytes,offset,first,last,source\n";

/// Returns a line for each tensor, after a heading. Offsets are bytes, and `first` and `last` indices of operations.
pub fn of(step: &PlacedStep) -> String {
    let mut text = String::from(HEADING);
    for tensor in &step.tensors {
        let fields = [
            quoted(&tensor.name),
            tensor.category.slug(),
            quoted(step.path(tensor.layer)),
            quoted(&tensor.shape),
            tensor.bytes.to_string(),
            tensor.offset.to_string(),
            tensor.first.to_string(),
            tensor.last.to_string(),
            quoted(&step.source(tensor.layer)),
        ];
        text += &fields.join(",");
        text.push('\n');
    }
    text
}

/// Returns a field, in quotes if it has a comma, a quote or a line break.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_with_commas_are_in_quotes() {
        assert_eq!(["a", "[3, 4]", "\"x\""].map(quoted), ["a", "\"[3, 4]\"", "\"\"\"x\"\"\""]);
    }
}
