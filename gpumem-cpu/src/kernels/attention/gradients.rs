//! The backward pass of attention: gradients of queries, keys, values and what is added to the scores.

use super::*;

/// The tensors from which the gradients of a head are computed.
struct Outcome<'a> {
    /// Each of the two is [T, V].
    dy: Matrix<'a>,
    y: Matrix<'a>,
    lse: &'a [f32],
}

/// The tensors that all gradients of all heads read.
struct BackwardInputs {
    sizes: Sizes,
    inputs: Inputs,
    gradient: Source,
    output: Source,
    saved: Source,
    draws: Option<Draws>,
}

impl BackwardInputs {
    fn outcome(&self, sequence: usize, head: usize) -> Outcome<'_> {
        let Sizes { heads, steps, values, .. } = self.sizes;
        let features = self.sizes.output();
        let range = sequence * steps * features..(sequence + 1) * steps * features;
        let columns = head * values..(head + 1) * values;
        Outcome {
            dy: Matrix::new(&self.gradient.get()[range.clone()], steps, features, features).columns(columns.clone()),
            y: Matrix::new(&self.output.get()[range], steps, features, features).columns(columns),
            lse: &self.saved.get()[(sequence * heads + head) * steps..][..steps],
        }
    }
}

/// Computes the gradients of queries, keys, values and the bias from `dy`, the inputs, the output and the log-sum-exp.
pub(in crate::kernels) fn backward(op: &Attention, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let (lengths, output, lse) = sizes.lengths();
    let draws = if op.dropout > 0.0 {
        Some(Draws::new(op.dropout, operands.row(), lse * op.keys as usize, operands)?)
    } else {
        None
    };
    let kept = BackwardInputs {
        sizes,
        inputs: Inputs::new(&sizes, op, operands)?,
        gradient: operands.source(Slot::Gradient, output)?,
        output: operands.source(Slot::Output, output)?,
        saved: operands.source(Slot::Saved(0), lse)?,
        draws,
    };
    let mut targets = Vec::new();
    for (index, length) in (0..).zip(lengths) {
        targets.push(operands.gradient(Slot::InputGradient(index), length)?);
    }
    let mut bias = None;
    if let Some(input) = op.added() {
        let (batched, length) = added(&sizes, operands, Slot::Input(input));
        bias = operands.gradient(Slot::InputGradient(input), length)?.map(|gradient| (gradient, batched));
    }
    if bias.is_none() && targets.iter().all(Option::is_none) {
        return Err(Error::Damaged("a backward operation writes no gradient"));
    }
    kernel(move |_| {
        if targets.iter().any(Option::is_some) {
            parts_back(&kept, &mut targets);
        }
        if let Some((gradient, batched)) = &mut bias {
            bias_back(&kept, gradient, *batched);
        }
    })
}

/// Returns the gradients of the whole batch, and sets those to 0 that are not added to.
fn whole_gradients<'a>(sizes: &Sizes, targets: &'a mut [Option<Gradient>]) -> Gradients<'a> {
    let [q, k, v] = sizes.features();
    let mut all: Gradients<'a> = [None, None, None];
    let pitches = if sizes.apart { [q, k, v] } else { [q + k + v; 3] };
    for (part, (target, pitch)) in targets.iter_mut().zip(pitches).enumerate() {
        let Some(Gradient { target, accumulate }) = target else { continue };
        let data = target.get();
        if !*accumulate {
            data.fill(0.0);
        }
        let matrix = MatrixMut::new(data, sizes.sequences * sizes.rows()[part], pitch, pitch);
        if sizes.apart {
            all[part] = Some(matrix);
        } else {
            let (dq, rest) = matrix.split_columns(q);
            let (dk, dv) = rest.split_columns(k);
            all = [Some(dq), Some(dk), Some(dv)];
        }
    }
    all
}

/// Splits gradients after a number of rows each.
fn cut_rows<'a>(gradients: Gradients<'a>, rows: [usize; 3]) -> (Gradients<'a>, Gradients<'a>) {
    let [first, second, third] = gradients;
    let cut = |gradient: Option<MatrixMut<'a>>, rows: usize| gradient.map(|gradient| gradient.split_rows(rows)).unzip();
    let ((a, d), (b, e), (c, f)) = (cut(first, rows[0]), cut(second, rows[1]), cut(third, rows[2]));
    ([a, b, c], [d, e, f])
}

/// Computes the gradients of queries, keys and values.
fn parts_back(kept: &BackwardInputs, targets: &mut [Option<Gradient>]) {
    let sizes = kept.sizes;
    let Sizes { heads, group, width, values, .. } = sizes;
    let factor = kept.draws.as_ref().map(Draws::factor);
    // Parts of one matrix have its rows.
    let rows = if sizes.apart { sizes.rows() } else { [sizes.rows()[0]; 3] };
    let cut = |gradients, count: usize| cut_rows(gradients, rows.map(|rows| rows * count));
    for_heads(0..sizes.sequences, whole_gradients(&sizes, targets), &cut, &|sequence, gradients: Gradients<'_>| {
        // Heads of queries that share keys add to the same gradients, so they run one after the other.
        for_heads(
            0..heads / group,
            gradients,
            &|gradients, count| cut_gradients(gradients, [count * group * width, count * width, count * values]),
            &|shared, [mut dq, mut dk, mut dv]| {
                for (at, head) in (shared * group..(shared + 1) * group).enumerate() {
                    let own = at * width..(at + 1) * width;
                    let gradients = [
                        dq.as_mut().map(|dq| dq.columns(own)),
                        dk.as_mut().map(|dk| dk.rows(0..sizes.keys)),
                        dv.as_mut().map(|dv| dv.rows(0..sizes.keys)),
                    ];
                    let outcome = kept.outcome(sequence, head);
                    attend_back(&kept.inputs.head(&sizes, sequence, head), &outcome, factor.as_ref(), gradients);
                }
            },
        );
    });
}

/// Computes the gradient of the bias. Each matrix is the sum over the heads that share it, in order, and a row the sum over all queries.
fn bias_back(kept: &BackwardInputs, gradient: &mut Gradient, batched: bool) {
    let sizes = kept.sizes;
    let factor = kept.draws.as_ref().map(Draws::factor);
    let accumulate = gradient.accumulate;
    gradient.target.get().par_chunks_mut(sizes.matrix()).enumerate().for_each(|(number, out)| {
        if !accumulate {
            out.fill(0.0);
        }
        for sequence in 0..sizes.sequences {
            for head in (0..sizes.heads).filter(|&head| bias_number(&sizes, batched, sequence, head) == number) {
                let outcome = kept.outcome(sequence, head);
                let head = kept.inputs.head(&sizes, sequence, head);
                for_slopes(&head, &outcome, factor.as_ref(), |rows, seen, _, slopes| {
                    for (slopes, row) in slopes.chunks_exact(seen.len()).zip(rows) {
                        let out = &mut out[row * sizes.bias_pitch()..][seen.clone()];
                        wide(|| out.iter_mut().zip(slopes).for_each(|(out, slope)| *out += slope));
                    }
                });
            }
        }
    });
}

/// Calls `f` for blocks of rows of a head, with the keys that they see, `f * p` and `s`.
fn for_slopes(
    head: &Head<'_>,
    outcome: &Outcome<'_>,
    factor: Option<&impl Fn(u64) -> f32>,
    mut f: impl FnMut(Range<usize>, Range<usize>, &[f32], &[f32]),
) {
    let Outcome { dy, y, lse } = *outcome;
    let steps = lse.len();
    let length = ROWS.min(steps) * head.keys;
    with_scratch(2 * length, |scratch| {
        let (probabilities, slopes) = scratch.split_at_mut(length);
        for rows in row_blocks(steps) {
            let seen = head.seen(rows.clone());
            let keys = seen.len();
            if keys == 0 {
                continue;
            }
            let p = &mut probabilities[..rows.len() * keys];
            let s = &mut slopes[..rows.len() * keys];
            head.scores(rows.clone(), p);
            let values = head.parts[2].rows(seen.clone()).t();
            product(MatrixMut::new(s, rows.len(), keys, keys), dy.rows(rows.clone()), values, 1.0, false);
            for ((p, s), i) in p.chunks_exact_mut(keys).zip(s.chunks_exact_mut(keys)).zip(rows.clone()) {
                let delta = sum_of_pairs(dy.row(i), y.row(i), |dy, y| f64::from(dy) * f64::from(y)) as f32;
                let own = inside(&seen, head.seen(i..i + 1));
                let first = head.first_draw + (i * head.keys + own.start) as u64;
                let (p, s) = (only(&seen, &own, p), only(&seen, &own, s));
                let log = lse[i];
                if log.is_finite() && log.abs() > FAR {
                    softmax(p);
                } else {
                    exponentials(None, p, false, [log, 1.0]);
                }
                match factor {
                    None => wide(|| s.iter_mut().zip(&*p).for_each(|(s, p)| *s = p * (*s - delta))),
                    Some(factor) => s.iter_mut().zip(p).zip(first..).for_each(|((s, p), index)| {
                        let f = factor(index);
                        *s = *p * (f * *s - delta);
                        *p *= f;
                    }),
                }
            }
            f(rows, seen, p, s);
        }
    });
}

/// Adds to the gradients of one head: queries [T, S], keys [M, S] and values [M, V].
fn attend_back(
    head: &Head<'_>,
    outcome: &Outcome<'_>,
    factor: Option<&impl Fn(u64) -> f32>,
    [mut dq, mut dk, mut dv]: Gradients<'_>,
) {
    let [q, k, _] = head.parts;
    for_slopes(head, outcome, factor, |rows, seen, p, s| {
        let [p, s] = [p, s].map(|numbers| Matrix::new(numbers, rows.len(), seen.len(), seen.len()));
        if let Some(dv) = &mut dv {
            product(dv.rows(seen.clone()), p.t(), outcome.dy.rows(rows.clone()), 1.0, true);
        }
        if let Some(dq) = &mut dq {
            product(dq.rows(rows.clone()), s, k.rows(seen.clone()), head.scale, true);
        }
        if let Some(dk) = &mut dk {
            product(dk.rows(seen), s.t(), q.rows(rows), head.scale, true);
        }
    });
}
