//! Launches of sums of several values: `kernels/elementwise/sum.cu`.

use crate::calls::Launch;
use crate::operations::context::{Context, branch};
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::grid::pack;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::ops::Sum;
use gpumem_core::program::{Slot, TensorId};

/// The most branches that one launch sums.
pub(in crate::operations) const AT_ONCE: usize = 8;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Sum) -> Result<Vec<Launch>, Error> {
    let sum = context.written(Slot::Output)?;
    add_and_rectify(context, op, sum, Rectifier::NONE)
}

/// Returns how often the output itself is a branch, and the other branches in the order of addition. The output's own share is added first.
pub(in crate::operations) fn shares(
    context: &Context<'_>,
    op: &Sum,
    y: TensorId,
) -> Result<(usize, Vec<TensorId>), Error> {
    let mut own = 0;
    let mut others = Vec::new();
    for index in 0..op.branches as usize {
        match context.read(Slot::Input(branch(index)?))? {
            // The sum of two is the same in either order. Of more branches, those of the first launch are added in their order, so that the sum
            // does not depend on which of them it overwrites.
            x if x == y && (op.branches == 2 || index >= AT_ONCE) => own += 1,
            x => others.push(x),
        }
    }
    // The first launch overwrites y, so later launches cannot read it as a branch.
    if own > 0 && others.contains(&y) {
        own += others.iter().filter(|&&x| x == y).count();
        others.retain(|&x| x != y);
    }
    Ok((own, others))
}

/// Returns the launches of the sum to `y`, followed by a rectifier, `RECTIFIER` of `rectify.cuh`. `y` may be a branch if the sum overwrites it.
pub(crate) fn add_and_rectify(
    context: &Context<'_>,
    op: &Sum,
    y: TensorId,
    rectifier: Rectifier,
) -> Result<Vec<Launch>, Error> {
    let count = context.elements(y);
    let sample = context.tensor(y).layout.elements(op.shape).unwrap_or(u64::MAX);
    let (own, others) = shares(context, op, y)?;
    // There is at least one launch, even if the output is the only branch.
    let groups = others.chunks(AT_ONCE).map(<[TensorId]>::to_vec);
    let groups: Vec<_> = if others.is_empty() { vec![Vec::new()] } else { groups.collect() };
    let last = groups.len() - 1;
    let launch = |(group, inputs): (usize, Vec<TensorId>)| {
        let is_shared = |x: TensorId| context.elements(x) != count;
        let shared: u32 = inputs.iter().enumerate().map(|(bit, &x)| u32::from(is_shared(x)) << bit).sum();
        // Later groups are added to the result of the first one.
        let own = if group == 0 { own } else { 1 };
        // Only the complete sum is rectified.
        let rectifier = if group == last { rectifier } else { Rectifier::NONE };
        let kernel = context.kernel("sum.cu", "sum").with("COUNT", format!("{count}ull"));
        let kernel = kernel.with("SAMPLE", format!("{sample}ull")).with("INPUTS", inputs.len());
        let kernel = kernel.with("SHARED", shared).with("OWN", own).with("RECTIFIER", rectifier);
        let mut arguments: Vec<_> = inputs.into_iter().map(Some).collect();
        arguments.resize(AT_ONCE, None);
        arguments.push(Some(y));
        // Elements that a thread sums: SUMMED of the kernel.
        let piece = pack(context, sample).max(if sample.is_multiple_of(4) { 4 } else { 1 });
        Launch::elementwise(kernel, count / piece, arguments)
    };
    Ok(groups.into_iter().enumerate().map(launch).collect())
}
