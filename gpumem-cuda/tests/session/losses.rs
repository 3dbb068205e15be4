//! Losses that the card writes into memory of the host: beside those that are copied there, to the bit.

use super::*;
use crate::host::card::on_a_simulated_card;
use crate::rules::read;
use gpumem_core::program::Measure;

const STEPS: usize = 20;

/// Lets the card have memory of the host, or not.
fn map(maps: bool) {
    set("GPUMEM_SIMULATED_UNMAPPED", if maps { "0" } else { "1" });
}

fn maps() -> bool {
    std::env::var("GPUMEM_SIMULATED_UNMAPPED").as_deref() == Ok("0")
}

fn set(variable: &str, value: &str) {
    // SAFETY: this process runs one test alone, in one thread.
    unsafe { std::env::set_var(variable, value) };
}

/// Copies in captured graphs so far, and what is enqueued.
fn work() -> [u64; 2] {
    read("simulated_work")
}

/// What `run` finds on a card that has memory of the host and on one that does not, which is the same.
fn both_ways<T: PartialEq + std::fmt::Debug>(job: &Job, run: impl Fn(&mut Session) -> T) -> T {
    let [ring, copied] = [true, false].map(|maps| {
        map(maps);
        let [before, _] = work();
        let mut card = load(job);
        assert_eq!(work()[0] == before, maps, "no copy has been captured");
        begin(job, &mut card);
        run(&mut card)
    });
    assert_eq!(ring, copied);
    ring
}

/// The bits of the last loss. Where the card sends it, the host waits for nothing but its word.
fn last(job: &Job, card: &mut Session) -> u32 {
    let (_, before) = start_up();
    let bits = loss(job, card).to_bits();
    assert!(!maps() || start_up().1 == before, "the host has waited");
    bits
}

/// The bits of the loss of each step, asked for behind each.
fn losses(job: &Job, card: &mut Session, steps: std::ops::Range<usize>) -> Vec<u32> {
    let mut step = |step| {
        feed(job, card, step);
        card.train().unwrap();
        last(job, card)
    };
    steps.map(&mut step).collect()
}

fn state_word(job: &Job, card: &mut Session, word: StateWord) -> u32 {
    let (state, _) = at(job.train.as_ref().unwrap(), Class::State);
    let mut bytes = [0; 4];
    card.read(state + 4 * word as u64, &mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

#[test]
fn they_are_those_that_are_copied() {
    if !on_a_simulated_card("losses::they_are_those_that_are_copied", &[]) {
        return;
    }
    for precision in [Precision::F32, Precision::Mixed(Half::Bf16)] {
        let job = job(precision);
        let found = both_ways(&job, |card| losses(&job, card, 0..STEPS));
        let distinct: std::collections::BTreeSet<u32> = found.into_iter().collect();
        assert_eq!(distinct.len(), STEPS, "each step has another loss");
    }
    // Several terms, the last of which sends the sum.
    let (sgd, term) = (Optimizer::Sgd(Sgd { lr: 0.01, ..Sgd::DEFAULT }), Term::of(Measure::Mean));
    let loss = &[Term::CROSS_ENTROPY, Term { weight: 0.5, ..term }];
    let training = Training {
        loss,
        moments: 1,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let job = job_training(&[2, 6, 6], "Flatten | Linear(5)", sgd, Precision::F32, (training, None));
    both_ways(&job, |card| losses(&job, card, 0..STEPS));
}

/// Without graphs.
#[test]
fn they_come_from_launches_call_by_call() {
    let name = "losses::they_come_from_launches_call_by_call";
    if !on_a_simulated_card(name, &[]) {
        return;
    }
    let job = job(Precision::F32);
    let replayed = both_ways(&job, |card| losses(&job, card, 0..STEPS));
    set("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags");
    assert_eq!(both_ways(&job, |card| losses(&job, card, 0..STEPS)), replayed);
}

/// Of steps on one batch, any number of which may be asked for at once: eight are enqueued at most beside the one whose loss has come,
/// and the host waits for their words alone.
#[test]
fn eight_steps_are_under_way_at_most() {
    if !on_a_simulated_card("losses::eight_steps_are_under_way_at_most", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let start = |card: &mut Session| {
        feed(&job, card, 0);
        card.train().unwrap();
        last(&job, card)
    };
    let expected = both_ways(&job, |card| {
        start(card);
        let mut step = || {
            card.train().unwrap();
            last(&job, card)
        };
        (0..STEPS).map(|_| step()).collect::<Vec<u32>>()
    });
    map(true);
    for each in [1, 7, 8, 9, STEPS] {
        let mut card = load(&job);
        begin(&job, &mut card);
        start(&mut card);
        card.read(0, &mut [0; 4]).unwrap();
        let ((_, waits), mut pending) = (start_up(), Vec::new());
        for (step, expected) in expected.iter().enumerate() {
            card.train().unwrap();
            pending.push(work()[1]);
            if step % each == each - 1 {
                assert_eq!(last(&job, &mut card), *expected, "step {step}, every {each}");
            }
        }
        assert_eq!(start_up().1, waits, "waits of the host");
        assert!(pending.iter().all(|&count| count < 9 * pending[0].max(1)), "every {each}: {pending:?}");
    }
}

/// What is no number comes as that, not as a word that is still to come.
#[test]
fn they_may_be_no_numbers() {
    if !on_a_simulated_card("losses::they_may_be_no_numbers", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, _)) = (at(placed, Class::Input), at(placed, Class::Target));
    for (bits, maps) in
        [(f32::NAN.to_bits(), true), (u32::MAX, true), (f32::INFINITY.to_bits(), true), (u32::MAX, false)]
    {
        map(maps);
        let mut card = load(&job);
        begin(&job, &mut card);
        for _ in 0..10 {
            card.feed(input, &bytes(&vec![bits; count])).unwrap();
            card.feed(target, &bytes(&[0, 1, 2])).unwrap();
            card.train().unwrap();
            assert!(f32::from_bits(last(&job, &mut card)).is_nan());
        }
    }
}

/// Steps that the state does not count, since their gradients were not finite.
#[test]
fn they_come_from_steps_that_are_skipped() {
    if !on_a_simulated_card("losses::they_come_from_steps_that_are_skipped", &[]) {
        return;
    }
    let (sgd, loss) = (Optimizer::Sgd(Sgd { lr: 0.01, ..Sgd::DEFAULT }), &[Term::CROSS_ENTROPY]);
    let training = Training {
        loss,
        moments: 1,
        update: Update::Separate,
        skips_overflow: true,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let job = job_training(&[2, 6, 6], "Flatten | Linear(5)", sgd, Precision::F16, (training, None));
    let (at_state, _) = at(job.train.as_ref().unwrap(), Class::State);
    let (_, made) = both_ways(&job, |card| {
        let scale = at_state + 4 * StateWord::LossScale as u64;
        card.write(scale, &16_777_216f32.to_le_bytes()).unwrap();
        (losses(&job, card, 0..STEPS), state_word(&job, card, StateWord::Step))
    });
    assert!((5..15).contains(&made), "{made} of {STEPS} steps count");
}

/// The state is written anew, whole or in part, while steps run; and there are other passes and a step that fails between steps.
#[test]
fn the_count_of_the_card_stays_its_own() {
    if !on_a_simulated_card("losses::the_count_of_the_card_stays_its_own", &[]) {
        return;
    }
    let mut job = job(Precision::F32);
    job.evaluation = Some(job.train.as_ref().unwrap().evaluation().unwrap());
    let (at_state, _) = at(job.train.as_ref().unwrap(), Class::State);
    let run = |card: &mut Session| {
        let mut found = Vec::new();
        for step in 0..STEPS {
            match step % 5 {
                // From the beginning.
                1 => begin(&job, card),
                // Steps that have been made, as far as they go; and bytes from the middle of one word to that of another.
                2 => card.write(at_state, &1_000_000u64.to_le_bytes()).unwrap(),
                3 => card.write(at_state + 4 * StateWord::Losses as u64 - 2, &[0; 4]).unwrap(),
                4 => {
                    set("GPUMEM_SIMULATED_REFUSED", "cuGraphLaunch");
                    let error = card.train().unwrap_err().to_string();
                    set("GPUMEM_SIMULATED_REFUSED", "");
                    assert_eq!(
                        error,
                        "CUDA: replaying the graph: DriverError(CUDA_ERROR_UNKNOWN, \"SIMULATED_ERROR_999\")"
                    );
                    // The last loss is still known.
                    assert!(!maps() || found.last() == Some(&last(&job, card)));
                }
                _ => {}
            }
            feed(&job, card, step);
            card.train().unwrap();
            card.evaluate().unwrap();
            card.infer().unwrap();
            found.push(last(&job, card));
        }
        found
    };
    both_ways(&job, |card| {
        let found = run(card);
        // A number for each step, and for each one that failed.
        let count = state_word(&job, card, StateWord::Losses) as usize;
        assert!(!maps() || count == STEPS + STEPS / 5, "{count}");
        found
    });
}

/// Whoever waits for a loss that will not come is told why, whether it is the last one or that of eight steps before.
#[test]
fn a_card_in_error_gives_its_error() {
    let name = "losses::a_card_in_error_gives_its_error";
    if !on_a_simulated_card(name, &[("GPUMEM_SIMULATED_FAILS", "cross_entropy")]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    // At once, or when it is waited for.
    let mut steps = (0..STEPS).map(|_| card.train());
    let error = steps.find_map(Result::err).expect("a step that has no room for its loss").to_string();
    assert!(error.contains("SIMULATED_ERROR_700"), "{error}");
    drop(steps);
    for _ in 0..2 {
        let error = card.train().unwrap_err().to_string();
        assert!(error.contains("SIMULATED_ERROR_700"), "{error}");
    }
}

/// The same, of the last step, whose loss comes either way.
#[test]
fn a_loss_that_never_comes_is_an_error() {
    let (name, variable) = ("losses::a_loss_that_never_comes_is_an_error", "GPUMEM_SIMULATED_UNMAPPED");
    if std::env::var_os(variable).is_none() {
        for unmapped in ["0", "1"] {
            let variables = [("GPUMEM_SIMULATED_FAILS", "cross_entropy"), (variable, unmapped)];
            assert!(!on_a_simulated_card(name, &variables));
        }
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    let result = placed.offsets[placed.program.results[0] as usize];
    let error = card.train().and_then(|()| card.loss(result)).unwrap_err().to_string();
    assert!(error.contains("SIMULATED_ERROR_700"), "{error}");
}
