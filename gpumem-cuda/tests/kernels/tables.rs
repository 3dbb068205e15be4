use crate::host::compare;
use crate::host::harness::graphs::{again, chain, join, layer, numbers, tokens};
use crate::{check, check_narrow, check_squares, gradients};
use gpumem_core::graph::{Graph, Node, NodeId, Source};
use gpumem_core::program::ops::Slice;

/// Compares an embedding of `steps` tokens a sample, of which `distinct` are different.
fn embedding(what: &str, batch: u64, steps: u64, distinct: u32, text: &str) {
    let mut graph = Graph::default();
    let input = graph.input(tokens(steps)).unwrap();
    let output = chain(&mut graph, input, text);
    let (training, optimizer) = gradients();
    compare(what, &graph, output, training, batch, optimizer, 1, distinct, 1e-5);
}

#[test]
fn rows_for_tokens() {
    embedding("small", 3, 11, 23, "Embedding(29, 13)");
    embedding("several rows and columns a block, tokens of two passes", 2, 611, 1099, "Embedding(1100, 260)");
    embedding("a row without a gradient", 3, 11, 23, "Embedding(29, 13, padding_idx = 7)");
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
    // A row a block, and several, of which some have a token.
    for (rows, features, steps) in [(29, 13, 7), (5000, 260, 7)] {
        check("Embedding", 3, |graph| {
            let input = graph.input(tokens(steps)).unwrap();
            let text = format!("Embedding({rows}, {features})");
            let once = layer(graph, input, &text);
            let again = again(graph, input, &text, 0);
            join(graph, &[once, again], "Add")
        });
    }
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

/// `length` rows of a layer's output, from row `start` on.
fn part(graph: &mut Graph, input: NodeId, start: u64, length: u64) -> NodeId {
    let mut value = graph.value(input);
    let op = Slice { input: value.shape, start, length, axis: 0 };
    value.shape = value.shape.with(0, length);
    let (inputs, row) = (vec![input], graph.nodes[input].row);
    let source = Source::Op { op: op.into(), inputs, buffers: Vec::new(), in_place: false };
    graph.nodes.push(Node { value, source, row, detached: false });
    graph.nodes.len() - 1
}

/// Parts of every sample, and of a table that there is one of; whole packs, and a start, a part or a whole that is none.
#[test]
fn parts_of_rows() {
    for (rows, width, start, length) in
        [(7, 4, 2, 3), (8, 1, 4, 4), (9, 1, 4, 4), (8, 1, 3, 4), (8, 1, 4, 3), (5, 3, 0, 5)]
    {
        let what = format!("rows {start} to {} of {rows}", start + length);
        check(&what, 3, |graph| {
            let input = graph.input(numbers(&[rows, width])).unwrap();
            let x = layer(graph, input, "Tanh");
            part(graph, x, start, length)
        });
    }
    check("rows of a table", 3, |graph| {
        let input = graph.input(numbers(&[7, 5])).unwrap();
        let table = chain(graph, input, "PositionEmbedding(7) | Tanh");
        let parts = [part(graph, input, 0, 3), part(graph, table, 2, 3)];
        join(graph, &parts, "Add")
    });
}

/// The gradient of the second part is added to that of the first.
#[test]
fn several_parts_of_rows() {
    for width in [4, 3] {
        check("parts that overlap", 3, |graph| {
            let input = graph.input(numbers(&[6, width])).unwrap();
            let x = layer(graph, input, "Tanh");
            let parts = [part(graph, x, 0, 4), part(graph, x, 2, 4)];
            join(graph, &parts, "Concat")
        });
    }
}

#[test]
fn parts_of_rows_in_sixteen_bits() {
    for start in [2, 3] {
        check_narrow("a part", 3, |graph| {
            let input = graph.input(numbers(&[7, 4])).unwrap();
            let x = layer(graph, input, "Tanh");
            let parts = [part(graph, x, start, 2), part(graph, x, 0, 2)];
            join(graph, &parts, "Concat")
        });
    }
}

/// Numbers that are written in the network, and one that fills a table.
#[test]
fn constants() {
    let table = "Constant([0.5; -1; 0.25; 1; -0.75; 2; 0.1; 1.5; 1e-3; -7; 3; 0.6], shape = [3; 4])";
    for text in [table, "Constant(-0.375, shape = [3; 4])", "Constant([1; 2; 0.5; -1])"] {
        let network = |graph: &mut Graph| {
            let input = graph.input(numbers(&[3, 4])).unwrap();
            let x = layer(graph, input, "Tanh");
            let table = layer(graph, x, text);
            join(graph, &[x, table], "Mul")
        };
        check(text, 3, network);
        check_narrow(text, 2, network);
    }
}

/// More tokens than a warp has lanes, and several samples.
#[test]
fn positions_without_padding() {
    embedding("few tokens, of which many are padding", 9, 7, 3, "PositionEmbedding(9, 13, padding_idx = 1)");
    embedding("several rounds of a warp", 2, 75, 4, "PositionEmbedding(80, 5, padding_idx = 2)");
    embedding("whole rounds", 3, 64, 4, "PositionEmbedding(65, 8, padding_idx = 0)");
}

/// Rows that a sample's own tokens name, some of them several times, and the row of the largest token.
#[test]
fn rows_by_index() {
    for (steps, width, tokens_of) in [(5, 3, 4), (7, 8, 70), (40, 5, 33)] {
        let network = |graph: &mut Graph| {
            let input = graph.input(numbers(&[steps, width])).unwrap();
            let text = graph.input(tokens(tokens_of)).unwrap();
            let x = layer(graph, input, "Tanh");
            let taken = join(graph, &[x, text], "Take");
            let last = layer(graph, taken, "Slice(-1)");
            join(graph, &[x, last], "Mul")
        };
        check("rows by index", 3, network);
    }
    check_narrow("rows by index in 16 bits", 2, |graph| {
        let input = graph.input(numbers(&[5, 8])).unwrap();
        let text = graph.input(tokens(7)).unwrap();
        let x = layer(graph, input, "Tanh");
        join(graph, &[x, text], "Take")
    });
    check("the largest token", 9, |graph| {
        let input = graph.input(numbers(&[70, 6])).unwrap();
        let text = graph.input(tokens(70)).unwrap();
        let x = layer(graph, input, "Tanh");
        let place = layer(graph, text, "ArgMax");
        let taken = join(graph, &[x, place], "Take");
        join(graph, &[x, taken], "Mul")
    });
}

/// Tokens of which parts are taken, whose axes change places, and that are repeated.
#[test]
fn tokens_that_are_moved() {
    for text in [
        "Slice(2, -1)",
        "Slice(4)",
        "Reshape([3; 5]) | Slice(1, 4, dim = 2)",
        "Reshape([3; 5]) | Select(-1)",
        "Reshape([3; 1; 5]) | Permute([0; 3; 1; 2])",
        "Reshape([5; 3]) | Transpose(1, 2) | Slice(1, 3, dim = 2)",
        "Expand([2; 2; 15]) | Slice(1, 2, dim = 2)",
        "Reshape([5; 1; 3]) | Expand([2; -1; 4; -1])",
    ] {
        embedding(text, 3, 15, 6, &format!("{text} | Flatten | Embedding(7, 5)"));
    }
}

/// Places of the largest and smallest elements in rows and in maps, of which some are equal, by which elements are looked up.
#[test]
fn elements_by_places() {
    for (dims, text) in [
        (&[3u64, 8][..], "TopK(3)"),
        (&[5, 33], "TopK(33, largest = false)"),
        (&[2, 1500], "TopK(5)"),
        (&[9, 4], "TopK(2, 1)"),
        (&[3, 70, 5], "TopK(3, 2, largest = false)"),
    ] {
        let network = |graph: &mut Graph| {
            let input = graph.input(numbers(dims)).unwrap();
            // Some of them are equal.
            let x = chain(graph, input, "Hardtanh(-0.3, 0.3)");
            let y = layer(graph, x, text);
            let again = layer(graph, x, text);
            join(graph, &[y, again], "Add")
        };
        check(text, 3, network);
        check_narrow(text, 2, network);
    }
    for (dims, text) in [(&[6u64, 40][..], "ArgMax(-1)"), (&[4, 6], "ArgMax(1)"), (&[6], "ArgMax")] {
        check(text, 3, |graph| {
            let input = graph.input(numbers(dims)).unwrap();
            chain(graph, input, &format!("{text} | Embedding(40, 5)"))
        });
    }
}

/// Elements that tokens name along each axis, some of them several times.
#[test]
fn elements_by_index() {
    // Tokens are below 5, which no axis here is shorter than.
    for (dims, count, dim, batch) in [
        (&[5u64, 3][..], 70, 1, 3),
        (&[3, 7], 9, 2, 3),
        (&[2, 6, 5], 4, 2, 3),
        (&[7], 11, 1, 3),
        // Enough of them that a thread sums two elements, and one at the end of the axis.
        (&[41, 330], 3, 1, 10),
    ] {
        let mut taken = dims.to_vec();
        taken[dim - 1] = count;
        let list: Vec<String> = taken.iter().map(u64::to_string).collect();
        let [gather, scatter] = ["Gather", "ScatterAdd"].map(|layer| format!("{layer}(dim = {dim})"));
        let network = |graph: &mut Graph, is_short: bool| {
            let input = graph.input(numbers(dims)).unwrap();
            let text = graph.input(tokens(taken.iter().product())).unwrap();
            let x = layer(graph, input, "Tanh");
            let index = layer(graph, text, &format!("Reshape([{}])", list.join("; ")));
            let once = join(graph, &[x, index], &gather);
            if is_short {
                return join(graph, &[x, index, once], &scatter);
            }
            let again = join(graph, &[x, index], &gather);
            let product = join(graph, &[once, again], "Mul");
            let sum = join(graph, &[x, index, product], &scatter);
            let of_sums = join(graph, &[sum, index, once], &scatter);
            join(graph, &[sum, of_sums], "Mul")
        };
        check("elements by index", batch, |graph| network(graph, false));
        // Fewer roundings in a row.
        if batch < 10 {
            check_squares("elements by index in 16 bits", 2, |graph| network(graph, true));
        }
    }
}

/// Rows side by side and maps, small and large, with norms on both sides of what is divided by at least.
#[test]
fn norms_along_an_axis() {
    for (dims, text) in [
        (&[3u64, 8][..], "L2Norm(-1)"),
        (&[3, 7], "L2Norm(-1, eps = 1.5)"),
        (&[2, 1500], "L2Norm(-1)"),
        (&[6, 5, 7], "L2Norm(1)"),
        (&[2, 9, 40], "L2Norm(2, eps = 2.0)"),
    ] {
        let network = |graph: &mut Graph| {
            let input = graph.input(numbers(dims)).unwrap();
            let x = layer(graph, input, "Tanh");
            let y = layer(graph, x, text);
            let again = layer(graph, x, text);
            join(graph, &[y, again, x], "Add")
        };
        check(text, 3, network);
        check_narrow(text, 2, network);
    }
}
