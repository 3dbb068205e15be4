use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::{Init, ops};
use alloc::format;
use alloc::vec::Vec;

/// `SelectiveScan(x, delta, b, c)`: the state space model at the heart of Mamba.
///
/// * Four branches: x `[T, D]`, the step sizes delta `[T, D]`, which [`StepSizes`](super::StepSizes) makes positive, and b and c `[T, N]`.
///   Output `[T, D]`. Each of the D channels has N states, at most 128, which are 0 before the first step:
///   `h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * x[t] * b[t]`, `y[t] = sum(c[t] * h[t]) + D * x[t]`, with `A = -exp(A_log)`.
/// * Parameters: `A_log` `[D, N]`, each row initialised to the logarithms of 1 to N, and `D` `[D]`, of ones.
/// * With `cache` in `INFER` the states of the last step are kept, in f32, and the next steps continue from them.
/// * Backward keeps the four branches. No states are kept: they are recomputed, 16 steps at a time.
///
/// PyTorch: `mamba_ssm.ops.selective_scan_interface.selective_scan_fn(x, delta, -torch.exp(A_log), b, c, D)` with the time as the last
/// axis; the loop over steps in `MambaMixer.slow_forward` of `transformers.models.mamba.modeling_mamba`.
#[derive(Clone, Debug)]
pub struct SelectiveScan;

impl Layer for SelectiveScan {
    const NAME: &'static str = "SelectiveScan";
    const INPUTS: (usize, usize) = (4, 4);

    fn read(_: &mut Arguments<'_>) -> SelectiveScan {
        SelectiveScan
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let rows = (0..x.len()).map(|branch| rows(x, branch)).collect::<Result<Vec<_>, _>>()?;
        let ([steps, channels], [_, states]) = (rows[0], rows[2]);
        for (branch, wanted) in [(1, [steps, channels]), (2, [steps, states]), (3, [steps, states])] {
            if rows[branch] != wanted {
                let [first, other] = [x[0].shape, x[branch].shape];
                let needed = match branch {
                    1 => format!("step sizes {first}"),
                    2 => format!("b [{steps}, N]"),
                    _ => format!("c {}, like b,", x[2].shape),
                };
                let text = format!("needs {needed} for x {first}, but branch {branch} produces {other}");
                return Err(Mistake::of_input(branch, text));
            }
        }
        let op = ops::SelectiveScan { steps, channels, states };
        if !op.is_sound() {
            let most = ops::SelectiveScan::MOST_STATES;
            let text =
                format!("has {states} states for each channel, but there are at most {most}; use narrower b and c");
            return Err(Mistake::of_input(2, text));
        }
        let values = b.apart(x, x.len())?;
        let a = b.parameter("A_log", &[channels, states], Role::Norm, Init::Logarithms { most: states });
        let skip = b.parameter("D", &[channels], Role::Norm, Init::Constant(1.0));
        b.op(op, &[values[0], values[1], a, values[2], values[3], skip])
    }
}

/// Returns steps and features of a branch.
fn rows(x: &[Value], branch: usize) -> Result<[u64; 2], Mistake> {
    let Value { elements, shape, .. } = x[branch];
    if let Some([given, remedy]) = elements.no_numbers() {
        let text = format!("works on numbers, but branch {branch} carries {given}; put `{remedy}` in that branch");
        return Err(Mistake::of_input(branch, text));
    }
    <[u64; 2]>::try_from(shape.dims()).map_err(|_| {
        let text = format!("works on sequences [T, D], but branch {branch} produces {shape}");
        Mistake::of_input(branch, text)
    })
}
