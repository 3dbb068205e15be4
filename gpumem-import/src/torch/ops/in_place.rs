//! Operations that change a tensor in place.

use super::super::layout::{elements, view_strides};
use super::super::meta::{Backward, Eager, Gradients, Tensor};
use super::super::trace::Site;

/// Gives a tensor that was changed in place a new history.
///
/// If it is a view, the tensor of which it is a view changes: the gradient of that one is copied, and then the part that the view covers.
pub(super) fn change(
    e: &Eager,
    target: &Tensor,
    inputs: &[Option<&Tensor>],
    saved: Vec<Option<&Tensor>>,
    derivative: impl Fn(&Backward<'_>) -> Gradients + 'static,
) {
    let Some(base) = target.base() else {
        e.record(&[target], inputs, saved, derivative);
        return;
    };
    let shape = target.shape.clone();
    let base_shape = base.shape.clone();
    let slices = move |b: &Backward<'_>| {
        let whole = b.fresh(&base_shape);
        let part = b.fresh(&shape);
        let mut needs = b.needs.to_vec();
        if let Some(first) = needs.first_mut() {
            *first = true;
        }
        let inside = Backward { e: b.e, saved: b.saved, gradients: b.gradients, gradient: &part, needs: &needs };
        let mut gradients = derivative(&inside);
        if let Some(first) = gradients.first_mut() {
            *first = Some(whole);
        }
        gradients
    };
    let from_base: Vec<Option<&Tensor>> =
        inputs.iter().map(|input| input.map(|input| if input.is(target) { &base } else { input })).collect();
    e.record(&[&base], &from_base, saved, slices);
    view_of(e, target, &base);
}

/// Ties a view to the new history of its base.
fn view_of(e: &Eager, view: &Tensor, base: &Tensor) {
    if !base.requires_grad() {
        return;
    }
    let site = e.enter(Site { label: "as_strided", ..e.site() });
    let shape = base.shape.clone();
    let is_whole = view.shape == base.shape;
    let is_reshaped = elements(&view.shape) == elements(&base.shape);
    let node = e.node(&[Some(base)], 1, Vec::new(), move |b| {
        vec![Some(match (is_whole, is_reshaped) {
            (true, _) => b.gradient.clone(),
            (_, true) => b.e.reshaped(b.gradient, &shape),
            _ => b.fresh(&shape),
        })]
    });
    e.enter(site);
    let mut history = view.history.borrow_mut();
    (history.node, history.requires_grad) = (Some((node, 0)), true);
}

impl Tensor {
    /// True if both are the same tensor.
    pub fn is(&self, other: &Tensor) -> bool {
        std::rc::Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eager {
    /// Returns a gradient in another shape: a view, or a copy if the layout forbids it.
    pub fn reshaped(&self, gradient: &Tensor, shape: &[u64]) -> Tensor {
        match view_strides(&gradient.shape, &gradient.strides, shape) {
            Some(strides) => gradient.alias(shape.to_vec(), strides),
            None => self.new_tensor(shape, gradient.dtype),
        }
    }
}
