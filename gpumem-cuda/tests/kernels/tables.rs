use crate::host::compare;
use crate::host::harness::graphs::{again, join, layer, numbers, tokens};
use crate::{check, check_narrow, gradients};
use gpumem_core::graph::Graph;

/// Compares an embedding of `steps` tokens a sample, of which `distinct` are different.
fn embedding(what: &str, batch: u64, steps: u64, distinct: u32, text: &str) {
    let mut graph = Graph::default();
    let input = graph.input(tokens(steps)).unwrap();
    let output = layer(&mut graph, input, text);
    let (training, optimizer) = gradients();
    compare(what, &graph, output, training, batch, optimizer, 1, distinct, 1e-5);
}

#[test]
fn rows_for_tokens() {
    embedding("small", 3, 11, 23, "Embedding(29, 13)");
    embedding("several rows and columns a block, tokens of two passes", 2, 611, 1099, "Embedding(1100, 260)");
    embedding("a large table", 1, 40, 33_001, "Embedding(33001, 3)");
    embedding("one token, more often than a list has room", 1, 2500, 1, "Embedding(5, 13)");
}

#[test]
fn rows_for_tokens_in_sixteen_bits() {
    for text in ["Embedding(7, 13)", "Embedding(5, 24)"] {
        check_narrow(text, 2, |graph| {
            let input = graph.input(tokens(3)).unwrap();
            layer(graph, input, text)
        });
    }
}

#[test]
fn rows_for_tokens_used_twice() {
    check("Embedding", 3, |graph| {
        let input = graph.input(tokens(7)).unwrap();
        let once = layer(graph, input, "Embedding(29, 13)");
        let again = again(graph, input, "Embedding(29, 13)", 0);
        join(graph, &[once, again], "Add")
    });
}

#[test]
fn rows_for_positions() {
    // Single elements and whole packs; some rows of the table, and all.
    for (steps, table) in
        [(7, "PositionEmbedding(9, 13)"), (6, "PositionEmbedding(31, 20)"), (5, "PositionEmbedding(5, 8)")]
    {
        check(table, 3, |graph| {
            let input = graph.input(tokens(steps)).unwrap();
            let width = table.rsplit([' ', ')']).nth(1).unwrap();
            let words = layer(graph, input, &format!("Embedding(29, {width})"));
            let positions = layer(graph, input, table);
            join(graph, &[words, positions], "Add")
        });
    }
}

#[test]
fn rows_for_positions_used_twice() {
    for text in ["PositionEmbedding(9)", "PositionEmbedding(8)"] {
        check(text, 3, |graph| {
            let input = graph.input(numbers(&[7, 12])).unwrap();
            let once = layer(graph, input, text);
            let sum = join(graph, &[input, once], "Add");
            let again = again(graph, input, text, 0);
            join(graph, &[sum, again], "Add")
        });
    }
}

#[test]
fn rows_for_positions_in_sixteen_bits() {
    check_narrow("PositionEmbedding", 2, |graph| {
        let input = graph.input(numbers(&[6, 4])).unwrap();
        let positions = layer(graph, input, "PositionEmbedding(8)");
        join(graph, &[input, positions], "Add")
    });
}
