//! The time of each launch by itself, and the nodes of graphs: `run profile` records them for whole networks.

use crate::card;
use crate::harness::curves::digits;

const REPETITIONS: usize = 5;

#[test]
fn every_launch_has_a_time() {
    let Some(card) = card() else { return };
    let network = digits(32);
    let mut loaded = network.on(&card.cuda).unwrap();
    loaded.initialise(1);
    let (images, labels) = network.batch_of(0);
    loaded.set("input", &images);
    loaded.set("target", &labels);
    let before = loaded.step().unwrap();
    let profile = loaded.runner_mut().profile(REPETITIONS).unwrap();
    let train = &profile.programs[0];
    for launch in &train.launches {
        let us = &launch.us;
        println!("{:>10.2} us {} {:?} {:?}", us[0], launch.counted.path, launch.counted.phase, launch.choice);
        assert!(us.len() == REPETITIONS && us.iter().all(|us| us.is_finite() && *us > 0.0), "{launch:?}");
    }
    println!("steps: {:?} us; graphs: {:?}", profile.step_us, train.graphs);
    assert!(profile.step_us.iter().all(|us| *us > 0.0));
    for nodes in &train.graphs {
        // A library may launch more than one kernel.
        assert!(nodes["kernel"] >= train.launches.len() as u64, "{nodes:?}");
    }
    // What was timed were steps on one batch.
    assert!(loaded.loss().unwrap() < before);
    println!("{:#?}", card.cuda.facts().unwrap());
}
