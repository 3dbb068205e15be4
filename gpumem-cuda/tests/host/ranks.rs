//! Ranks on the host: kernels of each rank, between which the exchanges of a step are played, beside the ranks of the CPU backend.

use super::tested::{Tested, seen, stored};
use super::*;
use gpumem_core::program::Part;
use gpumem_cuda::calls::exchange::{Exchange, Exchanged, Kind, Place, Reduction};
use std::ops::Range;

/// The words of tensors of one rank, by their number.
type Words = Vec<(usize, Vec<u32>)>;

/// The cards of all ranks, of which each waits for the others at every exchange.
struct Cards(Vec<Simulated>);

impl Cards {
    fn new(job: &Job, capability: (i32, i32), count: u64, order: i32) -> Cards {
        let own = |rank| {
            let format = (job.precision, capability);
            let setting = LaunchContext { rank, ..Products::Own.setting(job.batch, format, job.optimizer) };
            let steps = steps_where(&job.infer, setting, &mut |_| Ok(true)).unwrap_or_else(|error| panic!("{error}"));
            let steps = steps.into_iter().map(|step| calls_of(&job.infer, setting, step)).collect();
            Simulated::with_steps(job.infer.clone(), steps, job.batch, job.arena, job.precision, order)
        };
        Cards((0..count).map(own).collect())
    }

    /// Runs so many of the first operations on all ranks.
    fn run(&mut self, part: u64, count: usize) {
        let transients: Vec<usize> = {
            let program = &self.0[0].placed.program;
            let lasting: Vec<u32> = program.outlives_parts().collect();
            program.transients().filter(|id| !lasting.contains(id)).map(|id| id as usize).collect()
        };
        for (rank, card) in (0..).zip(&mut self.0) {
            card.begin(part);
            let program = &card.placed.program;
            let (state, micro_batches) = (program.state(), program.descent.micro_batches);
            if let Some(state) = state {
                let (at, number) = (4 * StateWord::PART, (rank * micro_batches + part) as u32);
                card.bytes(state as usize)[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            transients.iter().for_each(|&id| card.bytes(id).fill(0xff));
        }
        for at in 0..self.0[0].steps.len() {
            let step = self.0[0].steps[at].clone();
            if step.operations().iter().any(|&at| at >= count) {
                continue;
            }
            for call in 0..step.calls.len() {
                match &step.calls[call] {
                    Call::Exchange(Exchange::Wait(_)) => {}
                    Call::Exchange(Exchange::Start(_)) => self.exchange(at, call),
                    _ => self.0.iter_mut().for_each(|card| card.call(&card.steps[at].calls[call].clone())),
                }
            }
        }
    }

    /// Plays the exchanges that all ranks start with a call of a step.
    fn exchange(&mut self, step: usize, call: usize) {
        let starts = |card: &Simulated| match &card.steps[step].calls[call] {
            Call::Exchange(Exchange::Start(all)) => all.clone(),
            other => panic!("{other:?}"),
        };
        let of_ranks: Vec<Vec<Exchanged>> = self.0.iter().map(starts).collect();
        for tensor in 0..of_ranks[0].len() {
            let width = if of_ranks[0][tensor].format.bytes() == 2 { 2 } else { 4 };
            let bytes = of_ranks[0][tensor].count as usize * width;
            let sent: Vec<Vec<u8>> = self
                .0
                .iter_mut()
                .zip(&of_ranks)
                .map(|(card, own)| at(card, own[tensor].sent, bytes).to_vec())
                .collect();
            let all = match of_ranks[0][tensor].kind {
                Kind::Gather => sent.concat(),
                Kind::Reduce(reduction) => self.reduced(&sent, width as u64, reduction),
                Kind::Scatter => panic!("ranks have shards"),
            };
            for (card, own) in self.0.iter_mut().zip(&of_ranks) {
                at(card, own[tensor].received, all.len()).copy_from_slice(&all);
            }
        }
    }

    /// Returns one number for each element of what all ranks sent.
    fn reduced(&self, sent: &[Vec<u8>], width: u64, reduction: Reduction) -> Vec<u8> {
        let precision = self.0[0].precision;
        let words: Vec<Vec<u32>> = sent.iter().map(|own| seen(width, precision, own)).collect();
        let one = |index: usize| {
            let numbers = words.iter().map(|own| f32::from_bits(own[index]));
            match reduction {
                Reduction::Largest => words.iter().map(|own| own[index]).max().unwrap(),
                Reduction::Sum => numbers.sum::<f32>().to_bits(),
                Reduction::Mean => (numbers.sum::<f32>() / words.len() as f32).to_bits(),
            }
        };
        stored(width, precision, &(0..words[0].len()).map(one).collect::<Vec<u32>>())
    }
}

/// Returns bytes of a tensor, from a place on.
fn at(card: &mut Simulated, Place { tensor, at }: Place, bytes: usize) -> &mut [u8] {
    &mut card.bytes(tensor as usize)[at as usize..][..bytes]
}

/// A program on ranks of a card and of the CPU.
pub struct Shared<'a> {
    /// A program for the CPU, and that for the card, which may have other layouts.
    pub programs: [&'a Program; 2],
    pub format: Format,
    /// Samples of a rank's micro-batch.
    pub batch: u64,
    pub optimizer: Optimizer,
    /// Orders of warps.
    pub orders: Range<i32>,
    pub tolerance: f64,
    /// Changes the numbers of the input of each rank.
    pub input: fn(u64, f32) -> f32,
}

/// Runs a training step on all ranks, and compares everything that is left of it with the ranks of the CPU backend.
pub fn compare(what: &str, shared: &Shared<'_>) {
    let Shared { programs: [program, arranged], format: (precision, capability), batch, optimizer, .. } = *shared;
    let count = program.descent.ranks.count;
    let job_of_cards = job(arranged, batch, precision, optimizer);
    if !filled::capabilities().is_empty() {
        return filled::fill(&job_of_cards, capability);
    }
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let orders = if is_apart() { shared.orders.end - 1..shared.orders.end } else { shared.orders.clone() };
    for order in orders {
        let mut cards = Cards::new(&job_of_cards, capability, count, order);
        let given: Vec<Words> = (0..count).zip(&mut cards.0).map(|(rank, card)| give(shared, rank, card)).collect();
        let micro_batches = program.descent.micro_batches;
        for part in 0..micro_batches - 1 {
            cards.run(part, arranged.repeated());
        }
        cards.run(micro_batches - 1, arranged.operations.len());
        let expected = on_cpus(&job(program, batch, Precision::F32, optimizer), given);
        for (rank, (card, expected)) in cards.0.iter_mut().zip(expected).enumerate() {
            for (id, expected) in expected {
                let label =
                    format!("{what}, order {order}, rank {rank}: {}", program.tensor_name(&program.tensors[id]));
                let [found, expected] = [Tested::get(card, id), expected]
                    .map(|words| words.into_iter().map(f32::from_bits).collect::<Vec<f32>>());
                harness::assert_close(&label, &found, &expected, shared.tolerance);
            }
        }
    }
}

/// Fills the tensors of a rank. Returns the words that its card has then.
fn give(shared: &Shared<'_>, rank: u64, card: &mut Simulated) -> Words {
    let program = shared.programs[0];
    let of = |id: usize| {
        let mut words = beginning(program, id, shared.batch, 5, shared.optimizer)?;
        let tensor = &program.tensors[id];
        if matches!(tensor.class, Class::Input | Class::Target) {
            let first = rank as usize * 7 % words.len().max(1);
            words.rotate_left(first);
        }
        if tensor.class == Class::Input {
            words.iter_mut().for_each(|word| *word = (shared.input)(rank, f32::from_bits(*word)).to_bits());
        }
        Some((id, words))
    };
    let words: Words = (0..program.tensors.len()).filter_map(of).collect();
    words
        .into_iter()
        .map(|(id, words)| {
            Tested::put(card, id, &words);
            (id, Tested::get(card, id))
        })
        .collect()
}

/// Runs a training step on ranks of the CPU backend. Returns what is left on each of them, without indices and the state.
fn on_cpus(job: &Job, given: Vec<Words>) -> Vec<Words> {
    let program = &job.infer.program;
    let last = program.operations.len() as u32 - 1;
    let is_left = |id: &usize| {
        let tensor = &program.tensors[*id];
        let is_number = !matches!(tensor.role, gpumem_core::Role::Index | gpumem_core::Role::State);
        is_number && tensor.part != Part::Saved && (tensor.class != Class::Transient || tensor.last == last)
    };
    let width = |id: usize| program.tensors[id].role.bytes(Precision::F32);
    let run = |cpu: Cpu, given: Words| {
        let mut session = cpu.with_poison(true).load(job.clone()).unwrap();
        for (id, words) in given {
            session.write(job.infer.offsets[id], &stored(width(id), Precision::F32, &words)).unwrap();
        }
        (0..program.descent.micro_batches - 1).for_each(|part| session.accumulate(part).unwrap());
        session.train().unwrap();
        let mut read = |id: usize| {
            let mut bytes = vec![0; job.infer.bytes[id] as usize];
            session.read(job.infer.offsets[id], &mut bytes).unwrap();
            (id, seen(width(id), Precision::F32, &bytes))
        };
        (0..program.tensors.len()).filter(is_left).map(&mut read).collect()
    };
    let devices = Cpu::ranks(given.len()).unwrap();
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            devices.into_iter().zip(given).map(|(cpu, given)| scope.spawn(move || run(cpu, given))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
