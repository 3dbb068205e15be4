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
