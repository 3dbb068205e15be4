//! Reorders a draft, recomputes parts of it, and inserts copies to host memory. No number changes.

mod backward_order;
mod bus;
pub(in crate::lower) mod concat_prefix;
pub mod offload;
pub(in crate::lower) mod recompute;
pub(in crate::lower) mod recompute_norms;

use crate::lower::draft::Draft;
use crate::lower::options::{LowerError, Training};
use crate::lower::rewrite::Rewritten;
use crate::lower::sizes::Sizes;
use alloc::vec::Vec;

/// The order of operations that is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::lower) enum Schedule<'a> {
    /// The default order. Groups that the network's text marks are recomputed.
    Written,
    /// This order of the operations of the default one, in which forward operations may repeat.
    Order(&'a [u32]),
    /// The order that a search finds to need least memory at these sizes, unless the text marks groups.
    LeastMemory(&'a Sizes),
}

/// Returns the draft of a training step in the order that is asked for.
///
/// The search needs one draft for each order that it tries, so that this stage differentiates the graph as often.
///
/// # Errors
/// Those of [`up_to_loss`](crate::lower::differentiate::up_to_loss), and an order that is not one of the step's operations.
pub(in crate::lower) fn schedule(
    rewritten: &Rewritten<'_>,
    training: Training<'_>,
    wanted: Schedule<'_>,
) -> Result<Draft, LowerError> {
    let draft = match wanted {
        // Recomputed values of groups are alive for a short time only, which the search for an order does not know.
        Schedule::LeastMemory(sizes) if rewritten.graph.groups.is_empty() => {
            let sizes = sizes.of_part(training.descent.parts());
            backward_order::in_least_memory(rewritten, training, &sizes)?
        }
        _ => backward_order::in_default_order(rewritten, training)?,
    };
    offload::check(&training)?;
    let mut draft = match wanted {
        Schedule::Order(order) => recompute::in_order(&draft, order)?,
        Schedule::Written | Schedule::LeastMemory(_) => recompute::groups(draft, &rewritten.graph)?,
    };
    park(&mut draft, training);
    Ok(draft)
}

/// Returns the draft of a training step in each of several orders.
///
/// # Errors
/// Those of [`schedule`].
pub(in crate::lower) fn in_orders<'o>(
    rewritten: &Rewritten<'_>,
    training: Training<'_>,
    orders: impl Iterator<Item = &'o [u32]>,
) -> Result<Vec<Draft>, LowerError> {
    let draft = backward_order::in_default_order(rewritten, training)?;
    offload::check(&training)?;
    let mut drafts = recompute::in_orders(&draft, orders)?;
    drafts.iter_mut().for_each(|draft| park(draft, training));
    Ok(drafts)
}

/// Parks activations in host memory if the settings ask for it.
fn park(draft: &mut Draft, training: Training<'_>) {
    if training.descent.parks() {
        offload::park(draft);
    }
}

/// Searches the recompute levels of a training step.
///
/// # Errors
/// Those of [`schedule`].
pub(in crate::lower) fn search(
    rewritten: &Rewritten<'_>,
    training: Training<'_>,
    sizes: &Sizes,
) -> Result<recompute::Search, LowerError> {
    let draft = backward_order::in_default_order(rewritten, training)?;
    offload::check(&training)?;
    recompute::searched(&draft, &rewritten.graph, &sizes.of_part(training.descent.parts()), training.descent.parks())
}
