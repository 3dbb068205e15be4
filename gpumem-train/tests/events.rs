//! `tracing` events of a training.

mod common;

use common::{Points, loader, points};
use gpumem::Cpu;
use gpumem_train::{Every, Trainer};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects messages and steps.
#[derive(Clone, Default)]
struct Collect(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            "step" | "error" => write!(self.0, " {}={value:?}", field.name()).unwrap(),
            _ => {}
        }
    }
}

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gpumem_train")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn start_evaluations_checkpoints_and_end_are_events() {
    let folder = tempfile::tempdir().unwrap();
    let collect = Collect::default();
    tracing::subscriber::with_default(collect.clone(), || {
        let mut net = Points::on(&Cpu::new()).unwrap();
        let mut trainer = Trainer::new(&mut net)
            .max_steps(3)
            .validate(points(8, 2))
            .checkpoint(folder.path(), Every::Steps(3))
            .evaluate_every(Every::Steps(2))
            .quiet();
        trainer.run(&mut loader(61)).unwrap();
        drop(trainer);
        let _ = Trainer::new(&mut net).epochs(1).on_step(|_| Err("no".into())).quiet().run(&mut loader(61));
    });
    let events = collect.0.lock().unwrap().clone();
    let expected = [
        "training starts step=0",
        "evaluation step=2",
        "checkpoint step=3",
        "training ends step=3",
        "training starts step=3",
        "training failed step=4 error=a callback failed after step 4: no",
    ];
    assert_eq!(events, expected);
}
