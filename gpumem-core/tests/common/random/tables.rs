//! Choices of random networks that read learned values, tables and indices.

use super::super::{chain, join, layer, try_join};
use super::{Drawing, differ};
use gpumem_core::graph::{Elements, NodeId};

impl Drawing {
    /// Learned values that all samples share, in joins with those that differ, and as weights.
    pub(super) fn add_shared(&mut self, kind: usize, [map, sequence]: [NodeId; 2], (first, second): (usize, usize)) {
        let g = &mut self.graph;
        match (kind, second % 4) {
            (121, which) => {
                let texts = [
                    "Parameter([2; 4; 3])",
                    "Parameter([2; 2; 3]) | Upsample(size = [4; 3], mode = \"bilinear\")",
                    "Parameter([2; 4; 3]) | Conv2d(2, 3, padding = 1) | Gelu | AvgPool2d(3, 1, padding = 1)",
                    "Parameter([2; 5; 4]) | Conv2d(2, 2) | Permute([0; 2; 3; 1]) | Softmax | Permute([0; 3; 1; 2])",
                ];
                let shared = chain(g, map, texts[which]);
                let joins = ["Add", "Mul", "Concat", "Sub"];
                let joined = join(g, &[map, shared], joins[first % 4]);
                self.maps.push(layer(g, joined, "Conv2d(2, 1)"));
            }
            (122, 0) if first.is_multiple_of(2) => {
                let weight = layer(g, sequence, "Parameter([3; 3; 3])");
                self.sequences.push(join(g, &[sequence, weight], "Convolve1d(padding = 1)"));
            }
            (122, 1) if first.is_multiple_of(2) => {
                let volume = layer(g, map, "Reshape([2; 2; 2; 3])");
                let weight = chain(g, map, "Parameter([2; 2; 3; 3; 3]) | Tanh");
                let filtered = join(g, &[volume, weight], "Convolve3d(padding = 1)");
                self.maps.push(layer(g, filtered, "Reshape([2; 4; 3])"));
            }
            (122, which) => {
                let texts = [
                    "Parameter([2; 2; 3; 3]) | Tanh",
                    "Parameter([2; 1; 3; 3])",
                    "Parameter([2; 18]) | Softmax | Reshape([2; 2; 3; 3])",
                ];
                let weight = chain(g, map, texts[which % 3]);
                let groups = if which % 3 == 1 { 2 } else { 1 };
                self.maps.push(join(g, &[map, weight], &format!("Convolve2d(padding = 1, groups = {groups})")));
            }
            (_, 0) => self.sequences.push(layer(g, sequence, "Parameter([3; 8])")),
            (_, 1) => {
                let (left, right) = (layer(g, sequence, "Parameter([8; 2])"), layer(g, sequence, "Parameter([2; 8])"));
                let weight = join(g, &[left, right], "MatMul");
                let text = if first % 2 == 0 { "MatMul" } else { "MatMul(transpose_b = true)" };
                self.sequences.push(join(g, &[sequence, weight], text));
            }
            (_, 2) => {
                let graph = chain(g, sequence, "Parameter([3; 3]) | Softmax");
                self.sequences.push(join(g, &[graph, sequence], "MatMul"));
            }
            _ => {
                let prompt = layer(g, sequence, "Parameter([2; 8])");
                let longer = join(g, &[prompt, sequence], "Concat(dim = 1)");
                self.sequences.push(chain(g, longer, "CausalSelfAttention(2) | Slice(1, 4)"));
            }
        }
    }

    /// Tokens that are moved before something is looked up by them, and places of the largest elements.
    pub(super) fn add_indices(&mut self, sequence: NodeId, which: usize, kinked: bool) {
        let g = &mut self.graph;
        let text = g.nodes.iter().position(|node| node.value.elements == Elements::Indices).expect("the text");
        self.sequences.push(match which % 7 {
            0 => {
                let last = chain(g, text, "Slice(1) | Embedding(5, 8)");
                let first = chain(g, text, "Slice(0, 1) | Embedding(5, 8)");
                let rolled = join(g, &[last, first], "Concat(dim = 1)");
                join(g, &[sequence, rolled], "Add")
            }
            // Where two elements change places, a difference of losses is no derivative.
            2 if kinked => layer(g, sequence, "TopK(8)"),
            3 if kinked => layer(g, sequence, "TopK(3, 1, largest = false)"),
            4 if kinked => {
                let places = layer(g, sequence, "TopK(3, 1, indices = true)");
                join(g, &[sequence, places], "Gather")
            }
            5 if kinked => {
                let words = chain(g, sequence, "ArgMax(-1) | Embedding(8, 8)");
                join(g, &[sequence, words], "Add")
            }
            6 => {
                let index = chain(g, text, "ArgMax | Expand([3; 8])");
                let values = layer(g, sequence, "Tanh");
                match try_join(g, &[sequence, index, values], "ScatterAdd") {
                    Ok(sum) => sum,
                    // The sequence is the same for all samples.
                    Err(_) => values,
                }
            }
            _ => {
                let moved = "Expand([2; 3]) | Transpose(1, 2) | Select(0, dim = -1) | Embedding(5, 8)";
                let words = chain(g, text, moved);
                join(g, &[sequence, words], "Add")
            }
        });
    }

    /// Tables that are written or counted, rows that tokens choose, and norms along an axis.
    pub(super) fn add_table(&mut self, map: NodeId, sequence: NodeId, which: usize) {
        let g = &mut self.graph;
        let text = g.nodes.iter().position(|node| node.value.elements == Elements::Indices).expect("the text");
        match which % 7 {
            0 => {
                let table = layer(g, sequence, "Constant([0.5; -1; 0.25; 1; -0.75; 2; 0.1; 1.5])");
                self.sequences.push(join(g, &[sequence, table], if differ(g, &[sequence]) { "Mul" } else { "Add" }));
            }
            // With what they are of: a length alone would have no gradient.
            1 => {
                let norm = layer(g, map, "L2Norm(2, eps = 0.01)");
                self.maps.push(join(g, &[map, norm], "Add"));
            }
            2 => {
                let norm = layer(g, sequence, "L2Norm(-1, eps = 0.01)");
                self.sequences.push(join(g, &[sequence, norm], "Add"));
            }
            3 => {
                let last = layer(g, text, "ArgMax");
                self.sequences.push(match try_join(g, &[sequence, last], "Take") {
                    Ok(taken) => join(g, &[sequence, taken], "Add"),
                    Err(_) => layer(g, sequence, "Silu"),
                });
            }
            4 => self.sequences.push(layer(g, text, "PositionEmbedding(9, 8, padding_idx = 5)")),
            5 => {
                let text = "Rotary(2, base = 5.0, size = [1; 2], before = 1, interleaved = true)";
                self.sequences.push(layer(g, sequence, text));
            }
            _ => {
                let text = "SinusoidalPositions(4, rows_first = true, interleaved = true, parts = true) | Conv2d(2, 1)";
                let positions = chain(g, map, text);
                self.maps.push(join(g, &[map, positions], "Add"));
            }
        }
    }
}
