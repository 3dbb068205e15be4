//! Positions: angles, distances, masks, and what `lengths` and `segments` say of time steps.

use super::layers::Made;
use super::{Writer, int, list, table};
use gpumem_core::graph::NodeId;
use gpumem_core::program::Op;
use gpumem_core::program::ops::{
    Angles, HIDDEN, RelativeBias, Rotary, SegmentPositions, SequenceMask, Sinusoid, WindowMask,
};

impl Writer<'_> {
    /// Writes an operation that depends on positions. `None` if it is another one, or has no form in ONNX.
    pub(super) fn of_positions(&mut self, id: NodeId, op: &Op, inputs: &[NodeId]) -> Option<Made> {
        match op {
            Op::Rotary(rotary) => self.rotary(rotary, inputs),
            Op::RelativeBias(bias) => self.relative_bias(bias, inputs),
            Op::Sinusoid(sinusoid) => self.sinusoid(sinusoid, inputs),
            Op::WindowMask(mask) => self.window_mask(mask),
            Op::SequenceMask(mask) => self.sequence_mask(mask, inputs),
            Op::SegmentPositions(positions) => self.segment_positions(positions, inputs),
            Op::PaddedPositions(positions) => {
                let tokens = self.names[*inputs.first()?].clone();
                let (padding, axis) = (self.integers(&[positions.padding as i64]), self.axis(*inputs.first()?));
                let is_padding = self.add("Equal", &[&tokens, &padding], vec![]);
                let is_token = self.add("Not", &[&is_padding], vec![]);
                let ones = self.add("Cast", &[&is_token], vec![int("to", 7)]);
                let count = self.add("CumSum", &[&ones, &axis], vec![]);
                let count = self.add("Mul", &[&count, &ones], vec![]);
                Some((self.add("Add", &[&count, &padding], vec![]), self.dims(id)))
            }
            _ => None,
        }
    }

    /// Returns the number of a sample's first axis, as one number.
    fn axis(&mut self, id: NodeId) -> String {
        let axis = i64::from(self.is_batched(id));
        self.indices(format!("/axis({axis})"), &[], || vec![axis])
    }

    /// Turns the heads at the beginning of each row.
    fn rotary(&mut self, op: &Rotary, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let row = op.shape.last();
        let steps = op.shape.elements()?.checked_div(row)?;
        if !self.is_turned(op) {
            return None;
        }
        let x = self.as_shape(input, &[steps, row]);
        let batched = self.is_batched(input);
        let all = op.heads * op.width;
        let heads = if all == row { x.clone() } else { self.part(&x, -1, [0, all]) };
        let heads = self.shaped(&heads, batched, &[steps, op.heads, op.width]);
        let mut made = self.turn(&heads, op, batched, [steps, op.heads]);
        made = self.shaped(&made, batched, &[steps, all]);
        if all < row {
            let rest = self.part(&x, -1, [all, row]);
            made = self.add("Concat", &[&made, &rest], vec![int("axis", -1)]);
        }
        Some((made, vec![steps, row]))
    }

    /// True if a file can have the angles of these positions.
    pub(super) fn is_turned(&self, op: &Rotary) -> bool {
        let steps = op.shape.elements().and_then(|all| all.checked_div(op.shape.last()));
        !op.follows && steps.is_some_and(|steps| table(&[steps, op.dims]).is_some())
    }

    /// Writes `x * cos + turned(x) * sin` of the elements that turn, for heads `[T, heads, width]`.
    pub(super) fn turn(&mut self, heads: &str, op: &Rotary, batched: bool, [steps, count]: [u64; 2]) -> String {
        let moving = if op.dims == op.width { heads.to_string() } else { self.part(heads, -1, [0, op.dims]) };
        let turned = match op.interleaved {
            true => self.turned_pairs(&moving, op, batched, [steps, count]),
            false => self.turned_halves(&moving, op),
        };
        let [cos, sin] = [false, true].map(|is_sine| self.angles(op, steps, is_sine));
        let cos = self.add("Mul", &[&moving, &cos], vec![]);
        let sin = self.add("Mul", &[&turned, &sin], vec![]);
        let made = self.add("Add", &[&cos, &sin], vec![]);
        if op.dims == op.width {
            return made;
        }
        let rest = self.part(heads, -1, [op.dims, op.width]);
        self.add("Concat", &[&made, &rest], vec![int("axis", -1)])
    }

    /// Returns `(-b, a)` for the halves a and b of a row.
    fn turned_halves(&mut self, x: &str, op: &Rotary) -> String {
        let (first, second) = (self.part(x, -1, [0, op.dims / 2]), self.part(x, -1, [op.dims / 2, op.dims]));
        let second = self.add("Neg", &[&second], vec![]);
        self.add("Concat", &[&second, &first], vec![int("axis", -1)])
    }

    /// Returns `(-b, a)` for each pair of neighbours.
    fn turned_pairs(&mut self, x: &str, op: &Rotary, batched: bool, [steps, heads]: [u64; 2]) -> String {
        let pairs = self.shaped(x, batched, &[steps, heads, op.dims / 2, 2]);
        let (first, second) = (self.part(&pairs, -1, [0, 1]), self.part(&pairs, -1, [1, 2]));
        let second = self.add("Neg", &[&second], vec![]);
        let turned = self.add("Concat", &[&second, &first], vec![int("axis", -1)]);
        self.shaped(&turned, batched, &[steps, heads, op.dims])
    }

    /// Returns the cosine or the sine for each time step and each element of a head that turns.
    fn angles(&mut self, op: &Rotary, steps: u64, is_sine: bool) -> String {
        let Rotary { dims, base, interleaved, grid, before, .. } = op;
        let kind = if is_sine { "sin" } else { "cos" };
        let name = format!("/rotary_{kind}({steps},{dims},{base},{interleaved},{grid:?},{before})").replace(' ', "");
        let turns = op.turns(f64::powf);
        let number = |step: u64, element: u64| {
            let pair = if op.interleaved { element / 2 } else { element % (op.dims / 2) };
            // A full turn has 2^64 parts, so a product that wraps loses only whole turns.
            let part = turns[pair as usize].wrapping_mul(op.number(step, pair)) as i64;
            let angle = part as f64 * (std::f64::consts::PI / 9_223_372_036_854_775_808.0);
            (if is_sine { angle.sin() } else { angle.cos() }) as f32
        };
        self.constant(name, &[steps, 1, *dims], || {
            (0..steps).flat_map(|step| (0..op.dims).map(move |element| number(step, element))).collect()
        })
    }

    /// Looks up the number for each head and each distance. Distances are computed in the file, which would be long if it had their table.
    fn relative_bias(&mut self, op: &RelativeBias, inputs: &[NodeId]) -> Option<Made> {
        table(&op.offsets())?;
        let rows_of_heads = self.names[*inputs.first()?].clone();
        let ([height, width], positions) = (op.size, op.positions());
        let RelativeBias { size, distances, buckets, .. } = op;
        let name = format!("/distances({size:?},{distances:?},{buckets:?})").replace(' ', "");
        let across = 2 * width - 1;
        let place = |position: u64| (position / width * across + position % width) as i64;
        let first = ((height - 1) * across + width - 1) as i64;
        let query = self.indices(format!("{name}/query"), &[positions, 1], || {
            (0..positions).map(|position| place(position) + first).collect()
        });
        let key = self.indices(format!("{name}/key"), &[1, positions], || (0..positions).map(place).collect());
        let rows = op.table();
        let rows = self.indices(name, &[rows.len() as u64], || rows.into_iter().map(i64::from).collect());
        let distance = self.add("Sub", &[&query, &key], vec![]);
        let row = self.add("Gather", &[&rows, &distance], vec![int("axis", 0)]);
        let made = self.add("Gather", &[&rows_of_heads, &row], vec![int("axis", 0)]);
        let made = self.add("Transpose", &[&made], vec![list("perm", [2, 0, 1])]);
        Some((made, vec![op.heads, positions, positions]))
    }

    fn sinusoid(&mut self, op: &Sinusoid, inputs: &[NodeId]) -> Option<Made> {
        let shape = op.shape.dims().to_vec();
        let outer = shape.split_last()?.1;
        if op.has_positions() {
            if op.angles == Angles::Following {
                return None;
            }
            table(&shape)?;
            let numbers: Vec<f32> = numbers(op);
            return Some((self.numbers(&numbers, &shape), shape));
        }
        let &input = inputs.first()?;
        let mut x = self.as_shape(input, &[outer, &[1]].concat());
        if op.angles == Angles::Indices {
            x = self.add("Cast", &[&x], vec![int("to", 1)]);
        }
        let frequencies = op.frequencies(f64::powf);
        let frequencies = self.numbers(&frequencies, &[frequencies.len() as u64]);
        let angles = self.add("Mul", &[&x, &frequencies], vec![]);
        let mut both = ["Sin", "Cos"].map(|kind| self.add(kind, &[&angles], vec![]));
        if op.cosines_first {
            both.reverse();
        }
        if !op.interleaved {
            return Some((self.add("Concat", &[&both[0], &both[1]], vec![int("axis", -1)]), shape));
        }
        let last = self.integers(&[-1]);
        let both = both.map(|one| self.add("Unsqueeze", &[&one, &last], vec![]));
        let made = self.add("Concat", &[&both[0], &both[1]], vec![int("axis", -1)]);
        Some((made, [outer, &[op.features() / 2, 2]].concat()))
    }

    /// Compares the regions of queries and keys. The file has the regions alone.
    fn window_mask(&mut self, op: &WindowMask) -> Option<Made> {
        table(&op.counts())?;
        let [windows, positions] = op.counts();
        let WindowMask { size, window, shift } = op;
        let name = format!("/regions({size:?},{window:?},{shift:?})").replace(' ', "");
        let across = op.size[1] / op.window[1];
        let region = |at: u64, position: u64| {
            let row = at / across * op.window[0] + position / op.window[1];
            let column = at % across * op.window[1] + position % op.window[1];
            (3 * op.region(0, row) + op.region(1, column)) as i64
        };
        let all: Vec<i64> =
            (0..windows).flat_map(|at| (0..positions).map(move |position| region(at, position))).collect();
        let query = self.indices(format!("{name}/query"), &[windows, 1, positions, 1], || all.clone());
        let key = self.indices(format!("{name}/key"), &[windows, 1, 1, positions], || all);
        let is_seen = self.add("Equal", &[&query, &key], vec![]);
        let (zero, hidden) = (self.number(0.0), self.number(f64::from(HIDDEN)));
        let made = self.add("Where", &[&is_seen, &zero, &hidden], vec![]);
        Some((made, vec![windows, 1, positions, positions]))
    }

    /// Writes the first time steps of each sequence, and zeros after them.
    fn sequence_mask(&mut self, op: &SequenceMask, inputs: &[NodeId]) -> Option<Made> {
        let (&input, &lengths) = (inputs.first()?, inputs.get(1)?);
        let n = self.as_maps(lengths, &[1, 1]);
        let mut x = self.as_maps(input, &[op.steps, op.width]);
        if op.reverse {
            if !self.is_batched(input) || !self.is_batched(lengths) {
                return None;
            }
            let flat = self.integers(&[-1]);
            let flat = self.add("Reshape", &[&n, &flat], vec![]);
            x = self.add("ReverseSequence", &[&x, &flat], vec![int("batch_axis", 0), int("time_axis", 1)]);
        }
        let step = self.counted(op.steps, &[op.steps, 1]);
        let is_in = self.add("Less", &[&step, &n], vec![]);
        let zero = self.number(0.0);
        let made = self.add("Where", &[&is_in, &x, &zero], vec![]);
        let is_of_samples = self.is_batched(input) || self.is_batched(lengths);
        let shape = vec![op.steps, op.width];
        Some((made, if is_of_samples { shape } else { [&[1], &shape[..]].concat() }))
    }

    /// Writes positions in segments: a time step less the first one of its segment.
    ///
    /// Segments are counted by their beginnings. The largest beginning up to a segment's number is its own.
    fn segment_positions(&mut self, op: &SegmentPositions, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let x = self.as_maps(input, &[op.count]);
        let shape = self.of_maps(input, vec![op.count]);
        let step = self.counted(op.count, &[1, op.count]);
        let zero = self.indices("/zero".into(), &[], || vec![0]);
        let sizes = self.add("Shape", &[&x], vec![]);
        let zeros = self.add("Expand", &[&zero, &sizes], vec![]);
        let first = self.part(&zeros, 1, [0, 1]);
        let begins = if op.count > 1 {
            let (before, after) = (self.part(&x, 1, [0, op.count - 1]), self.part(&x, 1, [1, op.count]));
            let is_same = self.add("Equal", &[&before, &after], vec![]);
            let is_other = self.add("Not", &[&is_same], vec![]);
            let ones = self.add("Cast", &[&is_other], vec![int("to", 7)]);
            self.add("Concat", &[&first, &ones], vec![int("axis", 1)])
        } else {
            first
        };
        let axis = self.indices("/axis(1)".into(), &[], || vec![1]);
        let number = self.add("CumSum", &[&begins, &axis], vec![]);
        let place = self.add("Mul", &[&begins, &step], vec![]);
        let attributes = vec![int("axis", 1), super::text("reduction", "max")];
        let starts = self.add("ScatterElements", &[&zeros, &number, &place], attributes);
        let start = self.add("GatherElements", &[&starts, &number], vec![int("axis", 1)]);
        Some((self.add("Sub", &[&step, &start], vec![]), shape))
    }
}

/// Returns sines and cosines of positions.
fn numbers(op: &Sinusoid) -> Vec<f32> {
    let (frequencies, features, width) = (op.frequencies(f64::powf), op.features(), op.shape.last());
    let (count, parts) = (frequencies.len() as u64, op.parts());
    let number = |row: u64, element: u64| {
        let own = element % features;
        let (index, is_second) = if op.interleaved { (own / 2, own % 2 == 1) } else { (own % count, own >= count) };
        let is_down = features < width && (element >= features) != op.rows_first;
        let (place, [more, times]) = if is_down { (row / op.grid[1], parts[0]) } else { (row % op.grid[1], parts[1]) };
        let angle = f64::from((place as f32 + more) * times * frequencies[index as usize]);
        (if is_second != op.cosines_first { angle.cos() } else { angle.sin() }) as f32
    };
    (0..op.rows()).flat_map(|row| (0..width).map(move |element| number(row, element))).collect()
}
