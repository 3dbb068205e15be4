//! Selective scan: `h[t] = a[t] h[t - 1] + delta[t] u[t] b[t]` and `y[t] = c[t] . h[t] + d u[t]` for each channel, with N states h and
//! `a[t] = exp(delta[t] A)`, `A = -exp(A_log)`. u and delta are [B, T, D], A_log is [D, N], b and c are [B, T, N].
//!
//! Backward, from the last step to the first: `g[t] = c[t] dy[t] + a[t + 1] g[t + 1]` is the gradient of `h[t]`. From it
//! `du = d dy + delta (g . b)`, `ddelta = u (g . b) + g . (A a h[t - 1])`, `dA = sum of g delta a h[t - 1]`, and summed over channels
//! `db = g delta u`, `dc = dy h`.
//!
//! A group of channels runs through the steps at a time, each channel in a lane of one vector. The backward pass first computes the states
//! before each chunk of steps. It recomputes the states within a chunk when it reaches that chunk.

pub(in crate::kernels) mod cached;

use crate::kernels::attention::for_heads;
use crate::kernels::{Bound, kernel};
use crate::math::exp;
use crate::matrix::MatrixMut;
use crate::operands::{Gradient, Operands, Source, count};
use crate::parallel::{self, store, with_scratch};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::SelectiveScan;
use rayon::prelude::*;

/// The channels of a group.
pub(in crate::kernels) const GROUP: usize = SelectiveScan::GROUP as usize;

/// The steps of a chunk, whose states exist at the same time.
const CHUNK: usize = SelectiveScan::CHUNK as usize;

/// One number per channel of a group. Lanes after the last channel are 0.
pub(in crate::kernels) type Lanes = [f32; GROUP];

#[derive(Clone, Copy)]
pub(in crate::kernels) struct Sizes {
    pub(in crate::kernels) samples: usize,
    pub(in crate::kernels) steps: usize,
    pub(in crate::kernels) channels: usize,
    pub(in crate::kernels) states: usize,
}

impl Sizes {
    pub(in crate::kernels) fn new(op: &SelectiveScan, operands: &Operands<'_>) -> Result<Sizes, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("a scan has no steps or channels, or a number of states that it cannot have"));
        }
        let [samples, steps, channels, states] =
            [operands.batch(), op.steps, op.channels, op.states].map(|size| count(&[size]));
        Ok(Sizes { samples, steps, channels, states })
    }

    /// Returns the elements of the six inputs.
    pub(in crate::kernels) fn lengths(&self) -> [usize; 6] {
        let of = |factors: &[usize]| factors.iter().fold(1, |product: usize, &factor| product.saturating_mul(factor));
        let wide = of(&[self.samples, self.steps, self.channels]);
        let narrow = of(&[self.samples, self.steps, self.states]);
        [wide, wide, of(&[self.channels, self.states]), narrow, narrow, self.channels]
    }

    pub(in crate::kernels) fn groups(&self) -> usize {
        self.channels.div_ceil(GROUP)
    }
}

/// The inputs of the operation.
pub(in crate::kernels) struct Inputs {
    sizes: Sizes,
    u: Source,
    delta: Source,
    a_log: Source,
    b: Source,
    c: Source,
    skip: Source,
}

impl Inputs {
    pub(in crate::kernels) fn new(sizes: Sizes, operands: &Operands<'_>) -> Result<Inputs, Error> {
        let [u, delta, a_log, b, c, skip] = sizes.lengths();
        let source = |input, length| operands.source(Slot::Input(input), length);
        Ok(Inputs {
            sizes,
            u: source(0, u)?,
            delta: source(1, delta)?,
            a_log: source(2, a_log)?,
            b: source(3, b)?,
            c: source(4, c)?,
            skip: source(5, skip)?,
        })
    }

    /// Returns a group of channels of a sample.
    pub(in crate::kernels) fn group(&self, sample: usize, group: usize) -> Group<'_> {
        let Sizes { steps, channels, states, .. } = self.sizes;
        let (row, narrow) = (steps * channels, steps * states);
        let first = group * GROUP;
        let width = GROUP.min(channels - first);
        Group {
            channels,
            states,
            first,
            width,
            u: &self.u.get()[sample * row..][..row],
            delta: &self.delta.get()[sample * row..][..row],
            a_log: &self.a_log.get()[first * states..][..width * states],
            b: &self.b.get()[sample * narrow..][..narrow],
            c: &self.c.get()[sample * narrow..][..narrow],
            skip: lanes(&self.skip.get()[first..][..width]),
        }
    }
}

/// A group of channels of one sample.
pub(in crate::kernels) struct Group<'a> {
    channels: usize,
    states: usize,
    first: usize,
    width: usize,
    u: &'a [f32],
    delta: &'a [f32],
    a_log: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    skip: Lanes,
}

/// Returns numbers as lanes. The remaining lanes are 0.
#[inline(always)]
fn lanes(numbers: &[f32]) -> Lanes {
    let mut lanes = [0.0; GROUP];
    lanes[..numbers.len()].copy_from_slice(numbers);
    lanes
}

/// Returns `f` of each lane.
#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Lanes {
    let mut lanes = [0.0; GROUP];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = f(i);
    }
    lanes
}

/// Returns the sum of `f` over the lanes. Each round adds the upper half to the lower one.
#[inline(always)]
fn total(f: impl Fn(usize) -> f32) -> f32 {
    let mut sums = each(f);
    let mut width = GROUP / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}

impl Group<'_> {
    /// Returns the numbers of the group's channels at a step.
    #[inline(always)]
    fn row(&self, data: &[f32], t: usize) -> Lanes {
        lanes(&data[t * self.channels + self.first..][..self.width])
    }

    /// Returns u, delta and their product at a step.
    #[inline(always)]
    fn step(&self, t: usize) -> [Lanes; 3] {
        let (u, delta) = (self.row(self.u, t), self.row(self.delta, t));
        [u, delta, each(|i| u[i] * delta[i])]
    }

    /// Returns b or c at a step.
    #[inline(always)]
    fn narrow<'d>(&self, data: &'d [f32], t: usize) -> &'d [f32] {
        &data[t * self.states..][..self.states]
    }

    /// Computes A for each state: `-exp(A_log)`.
    #[inline(always)]
    fn decays(&self, a: &mut [Lanes]) {
        for (n, a) in a.iter_mut().enumerate() {
            *a = [0.0; GROUP];
            for (i, a) in a[..self.width].iter_mut().enumerate() {
                *a = -exp(self.a_log[i * self.states + n]);
            }
        }
    }
}

/// Several forward steps of a group. `room` holds A and then the states, which are updated.
pub(in crate::kernels) struct Forward<'a> {
    pub(in crate::kernels) group: &'a Group<'a>,
    pub(in crate::kernels) room: &'a mut [Lanes],
    pub(in crate::kernels) y: MatrixMut<'a>,
    pub(in crate::kernels) steps: usize,
}

impl Loop for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Forward { group, room, mut y, steps } = self;
        let (a, h) = room.split_at_mut(group.states);
        group.decays(a);
        for t in 0..steps {
            let [u, delta, du] = group.step(t);
            let mut sums = each(|i| group.skip[i] * u[i]);
            let terms = group.narrow(group.b, t).iter().zip(group.narrow(group.c, t));
            for ((a, h), (&b, &c)) in a.iter().zip(&mut *h).zip(terms) {
                for i in 0..GROUP {
                    h[i] = exp(delta[i] * a[i]) * h[i] + du[i] * b;
                    sums[i] += c * h[i];
                }
            }
            y.row(t).copy_from_slice(&sums[..group.width]);
        }
    }
}

/// Computes `y` from u, delta, A_log, b, c and d.
pub(in crate::kernels) fn forward(op: &SelectiveScan, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let inputs = Inputs::new(sizes, operands)?;
    let mut output = operands.target(Slot::Output, sizes.lengths()[0])?;
    kernel(move |_| {
        let Sizes { steps, channels, states, .. } = sizes;
        output.get().par_chunks_mut(steps * channels).enumerate().for_each(|(sample, y)| {
            let y = MatrixMut::new(y, steps, channels, channels);
            for_heads(0..sizes.groups(), y, &split, &|group, y| {
                with_lanes(2 * states, |room| {
                    room[states..].fill([0.0; GROUP]);
                    wide(Forward { group: &inputs.group(sample, group), room, y, steps });
                });
            });
        });
    })
}

/// Returns the columns of the first groups, and the remaining columns.
pub(in crate::kernels) fn split(y: MatrixMut<'_>, groups: usize) -> (MatrixMut<'_>, MatrixMut<'_>) {
    let at = y.width().min(groups * GROUP);
    y.split_columns(at)
}

/// Calls `f` with scratch memory of so many lanes.
pub(in crate::kernels) fn with_lanes(length: usize, f: impl FnOnce(&mut [Lanes])) {
    with_scratch(length * GROUP, |scratch| f(scratch.as_chunks_mut().0));
}

/// The results of a group's backward pass.
struct Made<'a> {
    du: Option<MatrixMut<'a>>,
    ddelta: Option<MatrixMut<'a>>,
    /// The sums of db [T, N] for each group, followed by those of dc.
    sums: &'a mut [f32],
    /// The sample's share of dA [D, N]. The next field is its share of dd `[D]`.
    da: &'a mut [f32],
    dskip: &'a mut [f32],
}

impl<'a> Made<'a> {
    /// Splits off the results of the first groups.
    fn split(self, groups: usize, sizes: &Sizes) -> (Made<'a>, Made<'a>) {
        let wide = |matrix: Option<MatrixMut<'a>>| matrix.map(|matrix| split(matrix, groups)).unzip();
        let ((du, other_du), (ddelta, other_ddelta)) = (wide(self.du), wide(self.ddelta));
        let (sums, other_sums) = self.sums.split_at_mut(groups * 2 * sizes.steps * sizes.states);
        let channels = self.dskip.len().min(groups * GROUP);
        let (da, other_da) = self.da.split_at_mut(channels * sizes.states);
        let (dskip, other_dskip) = self.dskip.split_at_mut(channels);
        let other = Made { du: other_du, ddelta: other_ddelta, sums: other_sums, da: other_da, dskip: other_dskip };
        (Made { du, ddelta, sums, da, dskip }, other)
    }
}

impl Group<'_> {
    /// Computes some steps with `a[t]` and the states of each. `kept` begins with the states before these steps.
    #[inline(always)]
    fn advance(&self, [first, length]: [usize; 2], a: &[Lanes], decays: &mut [Lanes], kept: &mut [Lanes]) {
        let states = self.states;
        for step in 0..length {
            let [_, delta, du] = self.step(first + step);
            let (before, after) = kept[step * states..].split_at_mut(states);
            let decays = &mut decays[step * states..][..states];
            for (n, &b) in self.narrow(self.b, first + step).iter().enumerate() {
                let (a, decay, before, after) = (&a[n], &mut decays[n], &before[n], &mut after[n]);
                for i in 0..GROUP {
                    decay[i] = exp(delta[i] * a[i]);
                    after[i] = decay[i] * before[i] + du[i] * b;
                }
            }
        }
    }
}

/// The backward pass of a group.
struct Back<'a> {
    group: &'a Group<'a>,
    dy: &'a [f32],
    steps: usize,
    room: &'a mut [Lanes],
    made: Made<'a>,
    /// True if du (or ddelta) is added to the gradient that is already there.
    adds: [bool; 2],
}

/// The values for each state that the backward pass carries from step to step.
struct Walk<'a> {
    a: &'a [Lanes],
    /// `a[t + 1] g[t + 1]`.
    g: &'a mut [Lanes],
    da: &'a mut [Lanes],
}

/// Returns the lanes of a group's backward pass: A, g and dA; a chunk's `a[t]` and its states, with those before it; the states before each chunk.
fn room_back(sizes: &Sizes) -> usize {
    (3 + CHUNK + CHUNK + 1 + sizes.steps.div_ceil(CHUNK)) * sizes.states
}

impl Loop for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Back { group, dy, steps, room, mut made, adds } = self;
        let states = group.states;
        let (a, room) = room.split_at_mut(states);
        let (g, room) = room.split_at_mut(states);
        let (da, room) = room.split_at_mut(states);
        let (decays, room) = room.split_at_mut(CHUNK * states);
        let (kept, borders) = room.split_at_mut((CHUNK + 1) * states);
        group.decays(a);
        g.fill([0.0; GROUP]);
        da.fill([0.0; GROUP]);
        kept[..states].fill([0.0; GROUP]);
        for (chunk, border) in borders.chunks_exact_mut(states).enumerate() {
            border.copy_from_slice(&kept[..states]);
            if (chunk + 1) * CHUNK < steps {
                group.advance([chunk * CHUNK, CHUNK], a, decays, kept);
                kept.copy_within(CHUNK * states.., 0);
            }
        }
        let mut walk = Walk { a, g, da };
        let mut dskip = [0.0; GROUP];
        for (chunk, border) in borders.chunks_exact(states).enumerate().rev() {
            let first = chunk * CHUNK;
            let length = CHUNK.min(steps - first);
            kept[..states].copy_from_slice(border);
            group.advance([first, length], walk.a, decays, kept);
            for step in (0..length).rev() {
                let t = first + step;
                let (decays, kept) = (&decays[step * states..][..states], &kept[step * states..][..2 * states]);
                let dy = group.row(dy, t);
                let [u, delta, du] = group.step(t);
                let sums = made.sums.split_at_mut(steps * states);
                let sums = [&mut sums.0[t * states..][..states], &mut sums.1[t * states..][..states]];
                let [of_b, of_a] = walk.back(group, t, [decays, kept], [&dy, &delta, &du], sums);
                (0..GROUP).for_each(|i| dskip[i] += dy[i] * u[i]);
                put(&mut made.du, t, adds[0], &each(|i| group.skip[i] * dy[i] + delta[i] * of_b[i]));
                put(&mut made.ddelta, t, adds[1], &each(|i| u[i] * of_b[i] + of_a[i]));
            }
        }
        for (i, (row, out)) in made.da.chunks_exact_mut(states).zip(made.dskip).enumerate() {
            row.iter_mut().zip(walk.a.iter().zip(&*walk.da)).for_each(|(out, (a, da))| *out = a[i] * da[i]);
            *out = dskip[i];
        }
    }
}

impl Walk<'_> {
    /// Computes one step and returns `g . b` and `g . (A a h[t - 1])`. `kept` holds the states before and after it. Writes the sums db and dc.
    #[inline(always)]
    fn back(
        &mut self,
        group: &Group<'_>,
        t: usize,
        [decays, kept]: [&[Lanes]; 2],
        [dy, delta, du]: [&Lanes; 3],
        [db, dc]: [&mut [f32]; 2],
    ) -> [Lanes; 2] {
        let (before, after) = kept.split_at(group.states);
        let (b, c) = (group.narrow(group.b, t), group.narrow(group.c, t));
        let [mut of_b, mut of_a] = [[0.0; GROUP]; 2];
        for n in 0..group.states {
            let (a, decay, before, after) = (&self.a[n], &decays[n], &before[n], &after[n]);
            let (g, da) = (&mut self.g[n], &mut self.da[n]);
            for i in 0..GROUP {
                g[i] += c[n] * dy[i];
                of_b[i] += g[i] * b[n];
            }
            db[n] = total(|i| g[i] * du[i]);
            dc[n] = total(|i| after[i] * dy[i]);
            for i in 0..GROUP {
                g[i] *= decay[i];
                let slope = g[i] * before[i];
                of_a[i] += slope * a[i];
                da[i] += slope * delta[i];
            }
        }
        [of_b, of_a]
    }
}

/// Writes a step of a gradient, or adds to it. Does nothing if the gradient is `None`.
#[inline(always)]
fn put(out: &mut Option<MatrixMut<'_>>, t: usize, add: bool, made: &Lanes) {
    let Some(out) = out else { return };
    let row = out.row(t);
    if add {
        row.iter_mut().zip(made).for_each(|(out, made)| *out += made);
    } else {
        row.copy_from_slice(&made[..row.len()]);
    }
}

/// The gradients of the six inputs. `None` for those that the operation does not write.
struct Wanted {
    wide: [Option<Gradient>; 2],
    a_log: Option<Gradient>,
    narrow: [Option<Gradient>; 2],
    skip: Option<Gradient>,
}

impl Wanted {
    fn new(sizes: &Sizes, operands: &mut Operands<'_>) -> Result<Wanted, Error> {
        let lengths = sizes.lengths();
        let mut gradient = |input: u8| operands.gradient(Slot::InputGradient(input), lengths[usize::from(input)]);
        Ok(Wanted {
            wide: [gradient(0)?, gradient(1)?],
            a_log: gradient(2)?,
            narrow: [gradient(3)?, gradient(4)?],
            skip: gradient(5)?,
        })
    }
}

/// Computes the gradients of u, delta, A_log, b, c and d.
pub(in crate::kernels) fn backward(op: &SelectiveScan, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let inputs = Inputs::new(sizes, operands)?;
    let dy = operands.source(Slot::Gradient, sizes.lengths()[0])?;
    let mut wanted = Wanted::new(&sizes, operands)?;
    let rooms = op.rooms();
    let each = rooms.into_iter().fold(0, u64::saturating_add);
    let mut workspace = operands.target(Slot::Workspace, count(&[operands.batch(), each]))?;
    let rooms = rooms.map(|room| count(&[room]));
    kernel(move |_| {
        let shares = workspace.get();
        walk_back(&inputs, dy.get(), &mut wanted.wide, shares, rooms);
        sum_groups(&sizes, &mut wanted.narrow, shares, rooms);
        let [borders, sums, da, dskip] = rooms;
        let each = borders + sums + da + dskip;
        sum_samples(&mut wanted.a_log, shares, each, borders + sums);
        sum_samples(&mut wanted.skip, shares, each, borders + sums + da);
    })
}

/// The gradients of u and delta of some samples, and the memory for their shares in the other gradients.
type Samples<'g> = ([Option<MatrixMut<'g>>; 2], &'g mut [f32]);

/// Computes the gradients of u and delta, and the shares of samples and groups in the other gradients.
fn walk_back<'g>(
    inputs: &Inputs,
    dy: &[f32],
    [du, ddelta]: &'g mut [Option<Gradient>; 2],
    shares: &'g mut [f32],
    [borders, sums, da, dskip]: [usize; 4],
) {
    let sizes = inputs.sizes;
    let Sizes { steps, channels, .. } = sizes;
    let row = steps * channels;
    let adds = [&*du, &*ddelta].map(|gradient| gradient.as_ref().is_some_and(|gradient| gradient.accumulate));
    let whole = |gradient: &'g mut Option<Gradient>| {
        gradient.as_mut().map(|gradient| {
            let data = gradient.target.get();
            let rows = data.len() / channels;
            MatrixMut::new(data, rows, channels, channels)
        })
    };
    let each = borders + sums + da + dskip;
    let samples = shares.len() / each;
    let cut_samples = |([du, ddelta], shares): Samples<'g>, samples: usize| {
        let cut = |gradient: Option<MatrixMut<'g>>| gradient.map(|matrix| matrix.split_rows(samples * steps)).unzip();
        let ((du, other_du), (ddelta, other_ddelta)) = (cut(du), cut(ddelta));
        let (shares, other_shares) = shares.split_at_mut(samples * each);
        (([du, ddelta], shares), ([other_du, other_ddelta], other_shares))
    };
    let all = ([whole(du), whole(ddelta)], shares);
    for_heads(0..samples, all, &cut_samples, &|sample, ([du, ddelta], share): Samples<'g>| {
        let (sums, share) = share.split_at_mut(borders).1.split_at_mut(sums);
        let (da, dskip) = share.split_at_mut(da);
        let cut = |made: Made<'g>, groups: usize| made.split(groups, &sizes);
        for_heads(0..sizes.groups(), Made { du, ddelta, sums, da, dskip }, &cut, &|group, made| {
            let (group, dy) = (inputs.group(sample, group), &dy[sample * row..][..row]);
            with_lanes(room_back(&sizes), |room| wide(Back { group: &group, dy, steps, room, made, adds }));
        });
    });
}

/// Computes db and dc, the sums over all groups.
fn sum_groups(sizes: &Sizes, gradients: &mut [Option<Gradient>; 2], shares: &[f32], rooms: [usize; 4]) {
    let Sizes { steps, states, .. } = *sizes;
    let length = steps * states;
    for (which, gradient) in gradients.iter_mut().enumerate() {
        let Some(Gradient { target, accumulate }) = gradient else { continue };
        let accumulate = *accumulate;
        parallel::pieces(None, target.get(), length, |sample, _, out| {
            let sums = &shares[sample * rooms.iter().sum::<usize>() + rooms[0]..][..rooms[1]];
            let of_group = |group: usize| &sums[(2 * group + which) * length..][..length];
            store(out, accumulate, |i| {
                (0..sizes.groups()).map(|group| f64::from(of_group(group)[i])).sum::<f64>() as f32
            });
            0.0
        });
    }
}

/// Computes a parameter's gradient, the sum of the samples' shares, which start at `first` in the workspace of a sample.
fn sum_samples(gradient: &mut Option<Gradient>, shares: &[f32], each: usize, first: usize) {
    let Some(Gradient { target, accumulate }) = gradient else { return };
    let accumulate = *accumulate;
    parallel::pieces(None, target.get(), parallel::PIECE, |piece, _, out| {
        let at = first + piece * parallel::PIECE;
        store(out, accumulate, |i| shares.chunks_exact(each).map(|share| f64::from(share[at + i])).sum::<f64>() as f32);
        0.0
    });
}
