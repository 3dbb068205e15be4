//! Launches of binary functions with broadcasting: `kernels/elementwise/binary.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::threads;
use gpumem_core::error::Error;
use gpumem_core::program::ops::{Axis, Binary, BinaryFunction};
use gpumem_core::program::{Slot, TensorId};

/// Returns the function's name in the kernel.
pub(in crate::operations) fn name(function: BinaryFunction) -> &'static str {
    match function {
        BinaryFunction::Add => "Add",
        BinaryFunction::Subtract => "Subtract",
        BinaryFunction::Multiply => "Multiply",
        BinaryFunction::Divide => "Divide",
        BinaryFunction::Rectify => "Rectify",
        BinaryFunction::Maximum => "Maximum",
        BinaryFunction::Minimum => "Minimum",
    }
}

fn length(axes: &[Axis], is: impl Fn(&Axis) -> bool) -> u64 {
    axes.iter().filter(|axis| is(axis)).fold(1, |product: u64, axis| product.saturating_mul(axis.length))
}

/// Returns the stride of an input along each axis, in elements; 0 if it is broadcast along it.
pub(in crate::operations) fn strides(axes: &[Axis], input: usize) -> Vec<u64> {
    let stride = |at: usize| {
        let inside = length(&axes[at + 1..], |axis| axis.has[input]);
        if axes[at].has[input] { inside } else { 0 }
    };
    (0..axes.len()).map(stride).collect()
}

/// Sizes and choices that the launches of an operation share.
pub(in crate::operations) struct Plan<'a> {
    pub(in crate::operations) context: &'a Context<'a>,
    function: BinaryFunction,
    pub(in crate::operations) axes: Vec<Axis>,
    /// Elements of the output.
    count: u64,
    /// Elements of a row that a thread works on at a time: `TOGETHER` of the kernel.
    together: u64,
}

impl<'a> Plan<'a> {
    pub(in crate::operations) fn new(
        context: &'a Context<'a>,
        op: &Binary,
        output: TensorId,
    ) -> Result<Plan<'a>, Error> {
        // An input that a gradient does not read may be absent; its gradient, which is written, has its size.
        let batched = [0, 1].map(|input| {
            let gradient = context.operation.written(Slot::InputGradient(input));
            let tensor = context.operation.read(Slot::Input(input)).or(gradient);
            tensor.is_none_or(|tensor| context.tensor(tensor).batched)
        });
        let axes = op.axes(context.samples(output), batched);
        let mut axes = axes.ok_or(Error::Damaged("two values do not fit each other"))?;
        if !context.tensor(output).layout.is_dense() {
            // All have one layout, including pitches, so elements are processed as they are stored.
            axes = vec![Axis { length: context.elements(output), has: [true; 2] }];
        }
        let count = length(&axes, |_| true);
        let together = if axes[axes.len() - 1].length.is_multiple_of(4) { 4 } else { 1 };
        Ok(Plan { context, function: op.function, axes, count, together })
    }

    /// True if an input has an element for each of the output, so that it is not broadcast.
    pub(in crate::operations) fn is_whole(&self, input: usize) -> bool {
        self.axes.iter().all(|axis| axis.has[input])
    }

    /// True if the function multiplies values of one size, for which there is a separate kernel.
    fn is_plain_product(&self) -> bool {
        self.function == BinaryFunction::Multiply && self.is_whole(0) && self.is_whole(1)
    }

    fn kernel(&self, entry: &'static str, input: usize, [lanes, columns]: [u64; 2], add: u8) -> Kernel {
        let list = |numbers: Vec<u64>| {
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number}ull")).collect();
            format!("{{{}}}", numbers.join(","))
        };
        let elements = length(&self.axes, |axis| axis.has[input]);
        let kernel = self.context.kernel("binary.cu", entry).with("FUNCTION", name(self.function));
        let kernel = kernel.with("COUNT", format!("{}ull", self.count)).with("AXES", self.axes.len());
        let kernel = kernel.with("LENGTHS", list(self.axes.iter().map(|axis| axis.length).collect()));
        let kernel = kernel.with("LEFT", list(strides(&self.axes, 0))).with("RIGHT", list(strides(&self.axes, 1)));
        let kernel = kernel.with("INPUT", input).with("ELEMENTS", format!("{elements}ull"));
        kernel.with("LANES", lanes).with("COLUMNS", columns).with("ADD", add)
    }

    /// Returns the launch of `y = a b`. For a gradient, y is the gradient of one factor.
    fn multiply(&self, [a, b, y]: [TensorId; 3], add: u8) -> Vec<Launch> {
        let kernel = self.kernel("multiply", 0, [32, 32], add);
        vec![Launch::elementwise(kernel, self.count.div_ceil(4), vec![Some(a), Some(b), Some(y)])]
    }

    /// Returns the launch of the gradient of a broadcast input, which sums over the repetitions.
    fn sums(&self, input: usize, add: u8, arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let elements = length(&self.axes, |axis| axis.has[input]);
        let repeated = length(&self.axes, |axis| !axis.has[input]);
        let too_many = |_| Error::Damaged("a gradient has more elements than a grid has blocks");
        let launch = |kernel, blocks, threads| {
            let blocks = u32::try_from(blocks).map_err(too_many)?;
            Ok(Launch { kernel, grid: [blocks, 1, 1], block: [threads, 1, 1], arguments, numbers: Vec::new() })
        };
        if self.axes[self.axes.len() - 1].has[input] {
            // As many slices as there is work for, up to 32, and then enough columns for 256 threads or more.
            let slices = repeated.next_power_of_two().clamp(1, 32);
            let columns = (256 / slices).max(32);
            let kernel = self.kernel("binary_columns", input, [32, columns], add);
            return launch(kernel, elements.div_ceil(columns), (slices * columns) as u32);
        }
        let pieces = repeated / self.together;
        if repeated > 1024 {
            return launch(self.kernel("binary_rows", input, [0, 32], add), elements, threads(pieces));
        }
        let lanes = pieces.next_power_of_two().min(32);
        launch(self.kernel("binary_rows", input, [lanes, 32], add), (elements * lanes).div_ceil(256), 256)
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Binary) -> Result<Vec<Launch>, Error> {
    let inputs = [context.read(Slot::Input(0))?, context.read(Slot::Input(1))?];
    let y = context.written(Slot::Output)?;
    let plan = Plan::new(context, op, y)?;
    if (0..2).any(|input| inputs[input] == y && !plan.is_whole(input)) {
        return Err(Error::Damaged("a repeated value cannot be overwritten"));
    }
    let [a, b] = inputs;
    if plan.is_plain_product() {
        return Ok(plan.multiply([a, b, y], 0));
    }
    let kernel = plan.kernel("binary", 0, [32, 32], 0);
    Ok(vec![Launch::elementwise(kernel, plan.count / plan.together, vec![Some(a), Some(b), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Binary) -> Result<Vec<Launch>, Error> {
    let (branch, dx) = context.gradient_of_branch(2)?;
    let dy = context.read(Slot::Gradient)?;
    let (plan, add) = (Plan::new(context, op, dy)?, context.adds(Slot::InputGradient(branch)));
    if plan.is_plain_product() {
        return Ok(plan.multiply([dy, context.read(Slot::Input(1 - branch))?, dx], add));
    }
    let input = usize::from(branch);
    let read = |input| context.operation.read(Slot::Input(input));
    let arguments = vec![Some(dy), read(0), read(1), Some(dx)];
    if !plan.is_whole(input) {
        return Ok(vec![plan.sums(input, add, arguments)?]);
    }
    let kernel = plan.kernel("binary_gradient", input, [32, 32], add);
    Ok(vec![Launch::elementwise(kernel, plan.count / plan.together, arguments)])
}
