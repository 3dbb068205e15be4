//! Sums, products and branches side by side: `kernels/join.cu`.

use super::Context;
use super::pointwise::Rectifier;
use crate::calls::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::ops::{Concat, Sum};
use gpumem_core::program::{Slot, TensorId};

/// Branches that one launch adds up.
const AT_ONCE: usize = 8;

/// The constants of `join.cu`. What an entry point does not look at stays as it is in [`Constants::NONE`].
#[derive(Clone, Copy)]
struct Constants {
    count: u64,
    sample: u64,
    inputs: usize,
    shared: u32,
    own: u32,
    part: u64,
    whole: u64,
    start: u64,
    add: u8,
    rectifier: Rectifier,
}

impl Constants {
    const NONE: Constants = Constants {
        count: 0,
        sample: 1,
        inputs: 0,
        shared: 0,
        own: 0,
        part: 1,
        whole: 1,
        start: 0,
        add: 0,
        rectifier: Rectifier::NONE,
    };

    fn kernel(self, context: &Context<'_>, entry: &'static str) -> Kernel {
        let kernel = context.kernel("join.cu", entry).with("COUNT", format!("{}ull", self.count));
        let kernel = kernel.with("SAMPLE", format!("{}ull", self.sample)).with("INPUTS", self.inputs);
        let kernel = kernel.with("SHARED", self.shared).with("OWN", self.own);
        let kernel = kernel.with("PART", format!("{}ull", self.part)).with("WHOLE", format!("{}ull", self.whole));
        kernel.with("START", format!("{}ull", self.start)).with("ADD", self.add).with("RECTIFIER", self.rectifier)
    }
}

/// The number of a branch, as slots have it.
fn branch(index: usize) -> Result<u8, Error> {
    u8::try_from(index).map_err(|_| Error::Damaged("a join has over 256 branches"))
}

/// The branch whose gradient the operation writes, and that gradient.
pub(super) fn gradient_of_branch(context: &Context<'_>, branches: usize) -> Result<(u8, TensorId), Error> {
    for index in 0..branches {
        let index = branch(index)?;
        if let Some(tensor) = context.operation.written(Slot::InputGradient(index)) {
            return Ok((index, tensor));
        }
    }
    Err(Error::Damaged("the gradient of a join is that of no branch"))
}

pub(super) fn sum(context: &Context<'_>, op: &Sum) -> Result<Vec<Launch>, Error> {
    let sum = context.written(Slot::Output)?;
    add_and_rectify(context, op, sum, Rectifier::NONE)
}

/// The sum to `y`, after a rectifier: `RECTIFIER` of `rectify.cuh`. `y` may be a branch if it is the sum's own place.
pub(crate) fn add_and_rectify(
    context: &Context<'_>,
    op: &Sum,
    y: TensorId,
    rectifier: Rectifier,
) -> Result<Vec<Launch>, Error> {
    let count = context.elements(y);
    let sample = op.shape.elements().unwrap_or(u64::MAX);
    let mut own = 0;
    let mut others = Vec::new();
    for index in 0..op.branches as usize {
        match context.read(Slot::Input(branch(index)?))? {
            x if x == y => own += 1,
            x => others.push(x),
        }
    }
    // At least one launch, even if the output is all there is to add.
    let groups = others.chunks(AT_ONCE).map(<[TensorId]>::to_vec);
    let groups: Vec<_> = if others.is_empty() { vec![Vec::new()] } else { groups.collect() };
    let last = groups.len() - 1;
    let launch = |(group, inputs): (usize, Vec<TensorId>)| {
        let is_shared = |x: TensorId| context.elements(x) != count;
        let shared = inputs.iter().enumerate().map(|(bit, &x)| u32::from(is_shared(x)) << bit).sum();
        // Later groups are added to what the first one left.
        let own = if group == 0 { own } else { 1 };
        // Only what all branches add up to is rectified.
        let rectifier = if group == last { rectifier } else { Rectifier::NONE };
        let constants = Constants { count, sample, inputs: inputs.len(), shared, own, rectifier, ..Constants::NONE };
        let mut arguments: Vec<_> = inputs.into_iter().map(Some).collect();
        arguments.resize(AT_ONCE, None);
        arguments.push(Some(y));
        // What a thread adds up: SUMMED of the kernel.
        let piece = if sample.is_multiple_of(4) { 4 } else { 1 };
        Launch::elementwise(constants.kernel(context, "add"), count / piece, arguments)
    };
    Ok(groups.into_iter().enumerate().map(launch).collect())
}

/// `y = a b`, for `count` elements of each.
pub(super) fn multiply(context: &Context<'_>, arguments: [TensorId; 3], count: u64, add: u8) -> Launch {
    let kernel = Constants { count, add, ..Constants::NONE }.kernel(context, "multiply");
    Launch::elementwise(kernel, count.div_ceil(4), arguments.map(Some).to_vec())
}

/// A launch that moves one branch's part of the rows between the branch, of `count` elements, and all branches together.
fn move_part(
    context: &Context<'_>,
    (parts, branch): (&[u64], usize),
    entry: &'static str,
    (count, add): (u64, u8),
    arguments: [TensorId; 2],
) -> Launch {
    let sum = |parts: &[u64]| parts.iter().fold(0u64, |sum, &part| sum.saturating_add(part));
    let (part, whole, start) = (parts[branch], sum(parts), sum(&parts[..branch]));
    // What a thread moves: MOVED of the kernel.
    let piece = if [part, whole, start].iter().all(|number| number.is_multiple_of(4)) { 4 } else { 1 };
    let constants = Constants { count, part, whole, start, add, ..Constants::NONE };
    Launch::elementwise(constants.kernel(context, entry), count / piece, arguments.map(Some).to_vec())
}

pub(super) fn concat(context: &Context<'_>, op: &Concat) -> Result<Vec<Launch>, Error> {
    let (y, parts) = (context.written(Slot::Output)?, op.parts());
    let mut launches = Vec::new();
    for index in 0..parts.len() {
        let x = context.read(Slot::Input(branch(index)?))?;
        launches.push(move_part(context, (&parts, index), "concat", (context.elements(x), 0), [x, y]));
    }
    Ok(launches)
}

pub(super) fn concat_backward(context: &Context<'_>, op: &Concat) -> Result<Vec<Launch>, Error> {
    let parts = op.parts();
    let (branch, dx) = gradient_of_branch(context, parts.len())?;
    let dy = context.read(Slot::Gradient)?;
    let (count, add) = (context.elements(dx), context.adds(Slot::InputGradient(branch)));
    let part = (&*parts, usize::from(branch));
    Ok(vec![move_part(context, part, "concat_backward", (count, add), [dy, dx])])
}
