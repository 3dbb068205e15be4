//! Indices that a card would follow to wherever they lead.

use super::*;
use gpumem_core::graph::Type;
use gpumem_core::shape::Shape;
use host::harness::graphs::{join, layer};

/// Steps of a text of 4 tokens, of which there are 7, named by the text itself, or by its largest token.
fn picked(by: &[&str]) -> Job {
    let mut graph = Graph::default();
    let text = graph.input(Type::indices(Shape::new(&[4]))).unwrap();
    let x = chain(&mut graph, text, "Embedding(7, 8) | Linear(8)");
    let index = by.iter().fold(text, |index, text| layer(&mut graph, index, text));
    let output = join(&mut graph, &[x, index], "Take");
    let compiled = plan(&lower(&graph, &[output], &Options::default()).unwrap(), BATCH, Precision::F32);
    let base = job(Precision::F32);
    Job { arena: compiled.budget[Line::Arena], infer: place(&compiled).unwrap(), train: None, ..base }
}

/// The smallest limit of all that look something up is the one that counts; what an operation makes is not looked at.
#[test]
fn steps_beyond_a_sequence_are_refused() {
    if !on_a_simulated_card("indices::steps_beyond_a_sequence_are_refused", &[]) {
        return;
    }
    let text = |token: u32| bytes(&[0, 1, 2, 3, 3, token, 1, 0, 0, 0, 0, 3]);
    let written = |job: &Job, token: u32| {
        let (input, _) = at(&job.infer, Class::Input);
        let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
        cpu.write(input, &text(token)).unwrap();
        (load(job).write(input, &text(token)), cpu.infer())
    };
    let wrong = |what, value, limit| Err(Error::Index { what, position: 5, value, limit });
    let own = picked(&[]);
    assert_eq!(written(&own, 3), (Ok(()), Ok(())));
    for token in [4, 6, 7] {
        assert_eq!(written(&own, token), (wrong("step", token, 4), wrong("step", token, 4)));
    }
    let largest = picked(&["ArgMax"]);
    assert_eq!(written(&largest, 6), (Ok(()), Ok(())));
    assert_eq!(written(&largest, 7), (wrong("token", 7, 7), wrong("token", 7, 7)));
}

/// Each part of the tokens is looked at by the limit of what reads it, and a part that nothing reads may be anything.
#[test]
fn parts_of_tokens_have_limits_of_their_own() {
    if !on_a_simulated_card("indices::parts_of_tokens_have_limits_of_their_own", &[]) {
        return;
    }
    let mut graph = Graph::default();
    let text = graph.input(Type::indices(Shape::new(&[4]))).unwrap();
    let first = chain(&mut graph, text, "Slice(0, 1) | Embedding(7, 8)");
    // Views of views: the last of four, and then the second.
    let later = chain(
        &mut graph,
        text,
        "Reshape([2; 2]) | Transpose(1, 2) | Slice(1) | Slice(1, dim = 2) | Flatten | Embedding(3, 8)",
    );
    let second = chain(&mut graph, text, "Slice(1) | Slice(0, 1) | Embedding(5, 8)");
    let output = join(&mut graph, &[first, later, second], "Concat(dim = 1)");
    let compiled = plan(&lower(&graph, &[output], &Options::default()).unwrap(), BATCH, Precision::F32);
    let base = job(Precision::F32);
    let job = Job { arena: compiled.budget[Line::Arena], infer: place(&compiled).unwrap(), train: None, ..base };
    let (input, _) = at(&job.infer, Class::Input);
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    let sound = [6, 4, 1000, 2, 0, 0, u32::MAX, 0, 6, 4, 7, 2];
    for (place, limit) in [(0, 7), (1, 5), (3, 3), (4, 7), (5, 5), (11, 3)] {
        let mut wrong = sound;
        wrong[place] = limit;
        let error = Err(Error::Index { what: "token", position: place as u64, value: limit, limit: limit.into() });
        assert_eq!(card.write(input, &bytes(&wrong)), error, "token {place}");
        cpu.write(input, &bytes(&wrong)).unwrap();
        assert_eq!(cpu.infer(), error, "token {place}");
        for runner in [&mut card as &mut dyn Runner, &mut cpu] {
            runner.write(input, &bytes(&sound)).unwrap();
            assert_eq!(runner.infer(), Ok(()));
        }
    }
}

/// The next step goes on with the batch before it, which is in the other half of the input.
#[test]
fn a_batch_that_is_refused_leaves_the_last_one() {
    if !on_a_simulated_card("indices::a_batch_that_is_refused_leaves_the_last_one", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, labels)) = (at(placed, Class::Input), at(placed, Class::Target));
    let [refused, given] = [true, false].map(|is_refused| {
        let mut card = load(&job);
        begin(&job, &mut card);
        let mut losses = Vec::new();
        for step in 0..3 {
            feed(&job, &mut card, step);
            card.train().unwrap();
            losses.push(loss(&job, &mut card).to_bits());
            if is_refused {
                card.feed(input, &stored(&job, Role::Activation, &spread(count, 77))).unwrap();
                let error = card.feed(target, &bytes(&vec![CLASSES; labels])).unwrap_err();
                assert!(matches!(error, Error::Index { .. }), "{error}");
            }
            card.train().unwrap();
            losses.push(loss(&job, &mut card).to_bits());
        }
        losses
    });
    assert_eq!(refused, given);
    assert_ne!(given[0], given[1]);
}

/// Whatever overlaps a tensor of indices is looked at before a step follows it, on both backends: a write from its second index on, one
/// that begins in the tensor before, one to the second half of the double buffer, and memory that nobody has written.
#[test]
fn indices_that_are_written_in_part_are_checked_before_a_step() {
    if !on_a_simulated_card("indices::indices_that_are_written_in_part_are_checked_before_a_step", &[]) {
        return;
    }
    let mut job = job(Precision::F32);
    job.evaluation = Some(job.train.as_ref().unwrap().evaluation().unwrap());
    let placed = job.train.as_ref().unwrap();
    let ((input, _), (target, _)) = (at(placed, Class::Input), at(placed, Class::Target));
    assert!(input < target);
    let wrong = |position| Err(Error::Index { what: "label", position, value: CLASSES, limit: CLASSES.into() });
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    // The card's memory is all ones after it is allocated.
    assert!(matches!(card.train(), Err(Error::Index { what: "label", position: 0, value: u32::MAX, .. })));
    assert!(matches!(card.evaluate(), Err(Error::Index { .. })));
    let steps = |runner: &mut dyn Runner, from: usize| {
        for step in from..from + 2 {
            feed(&job, runner, step);
            runner.train().unwrap();
        }
    };
    let parts: [(u64, &[u32], u64); 4] =
        [(4, &[CLASSES], 1), (8, &[CLASSES], 2), (4, &[0, CLASSES], 2), (0, &[0, CLASSES, 0], 1)];
    for (number, (offset, words, position)) in parts.into_iter().enumerate() {
        steps(&mut card, number);
        steps(&mut cpu, number);
        let before = state(&job, &mut card);
        for runner in [&mut card as &mut dyn Runner, &mut cpu] {
            match runner.write(target + offset, &bytes(words)) {
                // The card sees at once what is wrong with a whole tensor, and does not take it.
                Err(error) => assert_eq!((offset, Err(error)), (0, wrong(position))),
                Ok(()) => {
                    assert_eq!([runner.train(), runner.evaluate()], [wrong(position), wrong(position)], "{words:?}");
                    runner.write(target + offset, &bytes(&vec![1; words.len()])).unwrap();
                }
            }
            runner.write(target, &bytes(&[1, 1, 1])).unwrap();
            assert_eq!(runner.evaluate(), Ok(()));
        }
        assert_eq!(state(&job, &mut card), before);
    }
    // From what lies before the labels on, over all of them.
    for runner in [&mut card as &mut dyn Runner, &mut cpu] {
        runner.write(target - 4, &bytes(&[0, 0, CLASSES, 0])).unwrap();
        assert_eq!([runner.train(), runner.evaluate()], [wrong(1), wrong(1)]);
        runner.write(target - 4, &bytes(&[0, 0, 0, 0])).unwrap();
        assert_eq!([runner.train(), runner.evaluate()], [Ok(()), Ok(())]);
    }
}

/// Indices that are fed in part are checked too, in the half that the step reads. Nothing is fed beyond its half.
#[test]
fn indices_that_are_fed_in_part_are_checked_before_a_step() {
    if !on_a_simulated_card("indices::indices_that_are_fed_in_part_are_checked_before_a_step", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, _)) = (at(placed, Class::Input), at(placed, Class::Target));
    let wrong = Error::Index { what: "label", position: 1, value: CLASSES, limit: CLASSES.into() };
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    for step in 0..5 {
        for runner in [&mut card as &mut dyn Runner, &mut cpu] {
            feed(&job, runner, step);
            // While the label before it may still be on its way.
            runner.feed(target + 4, &bytes(&[CLASSES])).unwrap();
            assert_eq!(runner.train(), Err(wrong.clone()), "step {step}");
            runner.feed(input, &stored(&job, Role::Activation, &spread(count, 100 + step))).unwrap();
            runner.feed(target, &bytes(&[1, 2, 3])).unwrap();
            runner.feed(target + 4, &bytes(&[4])).unwrap();
            runner.train().unwrap();
        }
        let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
        assert!((found - expected).abs() < 1e-3 * expected.abs(), "step {step}: {found}, {expected}");
    }
    for (offset, length) in [(target, 1 << 16), (target + (1 << 16), 4), (input - 4, 4), (u64::MAX - 3, 4)] {
        let error = card.feed_with(offset, length, &|_, to| to.fill(0)).unwrap_err();
        assert!(matches!(error, Error::Range { .. } | Error::Length { .. }), "{length} bytes at {offset}: {error}");
    }
}

/// The double buffer's second half is memory of the arena like any other, which a write may reach.
#[test]
fn indices_in_the_second_half_are_checked() {
    if !on_a_simulated_card("indices::indices_in_the_second_half_are_checked", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let placed = job.train.as_ref().unwrap();
    let fed = placed.program.tensors.iter().enumerate();
    let fed = fed.filter(|(_, tensor)| matches!(tensor.class, Class::Input | Class::Target));
    let half: u64 = fed.map(|(id, _)| placed.bytes[id].next_multiple_of(256)).sum();
    let (target, _) = at(placed, Class::Target);
    let mut card = load(&job);
    begin(&job, &mut card);
    for step in 0..4 {
        feed(&job, &mut card, step);
        card.write(target + half + 4, &bytes(&[CLASSES])).unwrap();
        let is_second = step % 2 == 1;
        assert_eq!(card.train().is_err(), is_second, "step {step}");
        if is_second {
            card.write(target + half + 4, &bytes(&[0])).unwrap();
            card.train().unwrap();
        }
    }
}

/// Forward passes look at their own tokens: after a write in part, and after one for another batch in the same place.
#[test]
fn forward_passes_check_what_they_read() {
    if !on_a_simulated_card("indices::forward_passes_check_what_they_read", &[]) {
        return;
    }
    let job = picked(&[]);
    let (input, count) = at(&job.infer, Class::Input);
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    let wrong = |position| Err(Error::Index { what: "step", position, value: 4, limit: 4 });
    for runner in [&mut card as &mut dyn Runner, &mut cpu] {
        runner.write(input, &bytes(&vec![3; count])).unwrap();
        assert_eq!(runner.infer(), Ok(()));
        runner.write(input + 4, &bytes(&[3, 4])).unwrap();
        assert_eq!([runner.infer(), runner.infer()], [wrong(2), wrong(2)]);
        // Two bytes of an index.
        runner.write(input + 8, &[3, 0]).unwrap();
        assert_eq!(runner.infer(), Ok(()));
        runner.write(input + 10, &[4, 0]).unwrap();
        assert!(matches!(runner.infer(), Err(Error::Index { position: 2, value: 262_147, .. })));
    }
}

/// A part of a batch that cannot be followed ends the batch: the next one begins with its first part.
#[test]
fn a_part_that_is_refused_begins_the_batch_anew() {
    if !on_a_simulated_card("indices::a_part_that_is_refused_begins_the_batch_anew", &[]) {
        return;
    }
    let job = micro_batches::split(Precision::F32, None);
    let (target, _) = at(job.train.as_ref().unwrap(), Class::Target);
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    for runner in [&mut card as &mut dyn Runner, &mut cpu] {
        for refused in 0..micro_batches::PARTS {
            for part in 0..=refused {
                feed(&job, runner, part as usize);
                if part == refused {
                    runner.feed(target + 4, &bytes(&[CLASSES])).unwrap();
                }
                let is_last = part + 1 == micro_batches::PARTS;
                let run = if is_last { runner.train() } else { runner.accumulate(part) };
                assert_eq!(run.is_err(), part == refused);
            }
        }
    }
    for number in 0..3 {
        micro_batches::step(&job, &mut cpu, number).unwrap();
        micro_batches::step(&job, &mut card, number).unwrap();
        let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
        assert!((found - expected).abs() < 1e-3 * expected.abs(), "step {number}: {found}, {expected}");
    }
}

/// Blocks of a launch that wait for each other count from 0, whatever the host writes over the words that they count in.
#[test]
fn words_that_blocks_count_in_stay_as_they_are() {
    if !on_a_simulated_card("indices::words_that_blocks_count_in_stay_as_they_are", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let (offset, count) = at(job.train.as_ref().unwrap(), Class::State);
    let word = |index: StateWord| offset + 4 * index as u64;
    let mut card = load(&job);
    let seen = |card: &mut Session| {
        let mut words = vec![0; 4 * count];
        card.read(offset, &mut words).unwrap();
        [StateWord::Readers, StateWord::Blocks].map(|word| words[4 * word as usize..][..4].to_vec())
    };
    assert_eq!(seen(&mut card), [[0; 4]; 2]);
    for (place, length) in [(offset, 4 * count), (word(StateWord::Blocks), 4), (word(StateWord::Readers) + 2, 4)] {
        card.write(place, &vec![7; length]).unwrap();
        assert_eq!(seen(&mut card), [[0; 4]; 2], "{length} bytes at {place}");
    }
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    card.train().unwrap();
}
