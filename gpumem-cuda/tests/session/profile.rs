//! Records of a run: who computes each launch, how long it takes, the nodes of graphs, what the card says of itself.

use super::*;
use crate::convolutions::convolutions_job;
use crate::host::card::on_a_simulated_card_with_cudnn;
use crate::recorded;
use gpumem_core::report::roofline::Rates;
use gpumem_cuda::Call;
use gpumem_cuda::product::Element;
use gpumem_cuda::profile::{Launched, Nodes, Profile, Program};
use serde_json::Value;

const REPETITIONS: usize = 3;

/// What anything takes that the simulated card is given.
const EACH: f64 = 10.0;

/// A network's profile after two steps.
fn profiled(job: &Job, card: &mut Session) -> Profile {
    begin(job, card);
    for step in 0..2 {
        feed(job, card, step);
        card.train().unwrap();
    }
    card.profile(REPETITIONS).unwrap()
}

/// Things that a launch gives the card: a bias by itself is a second one.
fn given(launch: &Launched) -> u64 {
    let apart = |(name, value): &(String, i64)| name == "bias_apart" && *value == 1;
    1 + u64::from(launch.choice.as_ref().is_some_and(|choice| choice.settings.iter().any(apart)))
}

/// Every launch was timed by itself, and the graphs have a node for each thing that the card is given.
fn check(profile: &Profile) {
    let names: Vec<&str> = profile.programs.iter().map(|program| program.name).collect();
    assert_eq!(names, ["train", "infer"]);
    let [train, infer] = &profile.programs[..] else { unreachable!() };
    for launch in &train.launches {
        let took = |us: &f64| (us - EACH * given(launch) as f64).abs() < 1e-3;
        assert!(launch.us.len() == REPETITIONS && launch.us.iter().all(took), "{launch:?}");
    }
    assert!(infer.launches.iter().all(|launch| launch.us.is_empty()));
    let kernels = |program: &Program| program.launches.iter().map(given).sum::<u64>();
    // Waiting for what was fed, and each node of the graph.
    let step_us = (1 + kernels(train)) as f64 * EACH;
    assert_eq!(profile.step_us.len(), REPETITIONS);
    assert!(profile.step_us.iter().all(|us| (us - step_us).abs() < 1e-3), "{:?} {step_us}", profile.step_us);
    // The loss is in the host's memory without a copy.
    let half = Nodes::from([("kernel", kernels(train))]);
    assert_eq!(train.graphs, [half.clone(), half]);
    assert_eq!(infer.graphs, [Nodes::from([("kernel", kernels(infer))])]);
}

/// Where a batch is split, each launch says how often it runs, and together these are the step.
#[test]
fn parts_of_a_batch_add_up_to_a_step() {
    if !on_a_simulated_card("profile::parts_of_a_batch_add_up_to_a_step", &[]) {
        return;
    }
    let job = micro_batches::split(Precision::F32, None);
    let parts = micro_batches::PARTS;
    let (mut card, mut plain) = (load(&job), load(&job));
    for card in [&mut card, &mut plain] {
        begin(&job, card);
        micro_batches::step(&job, card, 0).unwrap();
    }
    let profile = card.profile(REPETITIONS).unwrap();
    let train = &profile.programs[0];
    let placed = job.train.as_ref().unwrap();
    // Updates run once, and all else for each part.
    for launch in &train.launches {
        let is_update = launch.counted.phase == gpumem_core::program::Phase::Update;
        assert_eq!(launch.runs, if is_update { 1 } else { parts }, "{launch:?}");
        assert_eq!(launch.us.len(), REPETITIONS);
    }
    assert!(train.launches.iter().any(|launch| launch.runs == 1));
    let sums = |launches: &[Launched]| -> f64 { launches.iter().map(|it| it.runs as f64 * it.us[0]).sum() };
    // Beside launches, each part waits for what was fed and has its number written; the first one has its sums set to 0, in one range or more.
    let zeros = placed.program.accumulators().count() as f64;
    for us in &profile.step_us {
        let others = (us - sums(&train.launches)) / EACH - 2.0 * parts as f64;
        assert!((1.0 - 1e-3..=zeros).contains(&others), "{us}: {others}");
    }
    assert!(sums(&train.launches) > 0.8 * profile.step_us[0]);
    // Both halves, with all of the last part, and with what runs for the others.
    let [whole, other, part, other_part] = &train.graphs[..] else { panic!("{:?}", train.graphs) };
    assert_eq!((whole, part), (other, other_part));
    let count = |is_it: fn(u64) -> bool| train.launches.iter().filter(|it| is_it(it.runs)).map(given).sum::<u64>();
    assert_eq!((whole["kernel"], part["kernel"]), (count(|_| true), count(|runs| runs > 1)));
    assert!(profile.programs[1..].iter().flat_map(|it| &it.launches).all(|launch| launch.runs == 1));
    let record = record(&profile);
    let written = record["launches_us"].as_f64().unwrap();
    assert!((written - sums(&train.launches)).abs() < 1e-3 * written);
    // What was timed are whole steps, on the part that was fed last.
    for _ in 0..2 * (REPETITIONS + 2) {
        (0..parts - 1).for_each(|part| plain.accumulate(part).unwrap());
        plain.train().unwrap();
    }
    assert_eq!(loss(&job, &mut card).to_bits(), loss(&job, &mut plain).to_bits());
    assert_eq!(state(&job, &mut card), state(&job, &mut plain));
}

/// The record as it is written, read again.
fn record(profile: &Profile) -> Value {
    let rates = Rates { bytes: 1e9, flops: 1e12 };
    let text = Value::Object(recorded::profile(profile, Some(rates))).to_string();
    serde_json::from_str(&text).unwrap()
}

fn launches(record: &Value, program: usize) -> &Vec<Value> {
    record["programs"][program]["launches"].as_array().unwrap()
}

/// Convolutions and products of the libraries, with what they chose; rates beside the roof.
#[test]
fn a_record_has_the_time_and_the_choice_of_each_launch() {
    if !on_a_simulated_card_with_cudnn("profile::a_record_has_the_time_and_the_choice_of_each_launch", &[]) {
        return;
    }
    let job = convolutions_job(false, Precision::F32);
    let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
    let profile = profiled(&job, &mut card);
    check(&profile);
    let record = record(&profile);
    assert_eq!(record["programs"][0]["graphs"].as_array().unwrap().len(), 2);
    let train = launches(&record, 0);
    let by = |library: &str| train.iter().filter(|launch| launch["computed_by"] == library).collect::<Vec<_>>();
    let [own, cudnn, products] = ["gpumem", "cuDNN", "cuBLASLt"].map(by);
    assert!(!own.is_empty() && own.iter().all(|launch| launch["file"].is_string() && launch["algorithm"].is_null()));
    assert!(own.iter().all(|launch| launch["grid"].as_array().is_some_and(|sizes| sizes.len() == 3)));
    // Four layers: outputs, gradients of all inputs but the image's, gradients of all weights.
    assert_eq!(cudnn.len(), 4 + 3 + 4);
    for launch in cudnn {
        assert_eq!(launch["call"], "convolution");
        assert!(launch["algorithm"].as_str().unwrap().starts_with("CUDNN_CONVOLUTION_"), "{launch}");
        assert!(launch["workspace_taken"].as_u64().unwrap() <= launch["workspace"].as_u64().unwrap(), "{launch}");
        assert!(launch["what"].as_str().unwrap().contains("kernel"), "{launch}");
    }
    for launch in &products {
        assert_eq!((&launch["call"], &launch["algorithm"]), (&"product".into(), &"algorithm 1".into()));
        let settings = launch["settings"].as_object().unwrap();
        // The last kind of setting is one that this version of the library does not know.
        assert_eq!((settings.len(), &settings["tile"], &settings["inner_shape"]), (7, &11.into(), &71.into()));
    }
    assert_eq!(products.len(), 3);
    for launch in train {
        let bytes: u64 = ["reads", "writes"]
            .iter()
            .flat_map(|key| launch[key].as_array().unwrap())
            .map(|it| it.as_u64().unwrap())
            .sum();
        let (us, rate) = (launch["us"].as_f64().unwrap(), launch["gb_per_s"].as_f64().unwrap());
        assert!((rate * us * 1e3 - bytes as f64).abs() < 1e-3 * bytes as f64, "{launch}");
        let (flops, roof) = (launch["flops"].as_u64().unwrap() as f64, launch["roof_us"].as_f64().unwrap());
        let least = (bytes as f64 / 1e3).max(flops / 1e6);
        assert!((roof - least).abs() <= 1e-6 * least, "{launch}");
        assert!(["forward", "loss", "backward", "update"].contains(&launch["phase"].as_str().unwrap()), "{launch}");
    }
    // The forward pass by itself has its choices as well, and no times.
    assert_eq!(
        launches(&record, 1).iter().filter(|launch| launch["computed_by"] == "cuDNN").count(),
        card.convolutions()
    );
    assert!(launches(&record, 1).iter().all(|launch| launch["us"].is_null()));
}

/// Engines of 16-bit convolutions, with their settings.
#[test]
fn engines_are_recorded() {
    if !on_a_simulated_card_with_cudnn("profile::engines_are_recorded", &[]) {
        return;
    }
    let job = job_of_sequence(attention::ATTENTION, Precision::Bf16, false);
    let mut card = load_on(&Cuda::new(0).unwrap(), &job).unwrap();
    let profile = profiled(&job, &mut card);
    check(&profile);
    let record = record(&profile);
    let is_attention = |launch: &&Value| launch["call"] == "attention" && launch["computed_by"] == "cuDNN";
    let found: Vec<&Value> = launches(&record, 0).iter().filter(is_attention).collect();
    assert_eq!(found.len(), 4, "two layers, forward and backward");
    for launch in found {
        // The first that it names, since runs may differ.
        assert_eq!((&launch["algorithm"], &launch["settings"]["knob 14"]), (&"engine 0".into(), &100.into()));
        assert_eq!((&launch["settings"]["tensor_cores"], &launch["settings"]["deterministic"]), (&1.into(), &0.into()));
    }
}

/// Without the libraries every launch is a kernel of the project's own, timed as well.
#[test]
fn own_kernels_are_recorded_where_there_are_no_libraries() {
    if !on_a_simulated_card("profile::own_kernels_are_recorded_where_there_are_no_libraries", &[]) {
        return;
    }
    let job = convolutions_job(false, Precision::F32);
    let device = Cuda::new(0).unwrap().with_library(false);
    let mut card = load_on(&device, &job).unwrap();
    let profile = profiled(&job, &mut card);
    check(&profile);
    let all = profile.programs.iter().flat_map(|program| &program.launches);
    assert!(all.clone().all(|launch| launch.choice.is_none() && matches!(launch.counted.call, Call::Kernel(_))));
    let record = record(&profile);
    assert!(launches(&record, 0).iter().all(|launch| launch["computed_by"] == "gpumem"));
    let facts = device.facts().unwrap();
    assert_eq!((&facts.device_property, &facts.nan_products), (&Ok(None), &Ok(Vec::new())));
    let card = recorded::card(&facts);
    assert!(card["device_property"].is_null() && card["cudnn"].is_null(), "{card}");
}

/// What is timed are steps: the network is where as many calls of `train` bring it, and goes on from there.
#[test]
fn a_profiled_network_is_trained_on() {
    if !on_a_simulated_card("profile::a_profiled_network_is_trained_on", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let (mut card, mut plain) = (load(&job), load(&job));
    profiled(&job, &mut card);
    begin(&job, &mut plain);
    feed(&job, &mut plain, 0);
    plain.train().unwrap();
    feed(&job, &mut plain, 1);
    // The step before, and those that are timed and warm up, replayed and one by one.
    (0..1 + 2 * (REPETITIONS + 2)).for_each(|_| plain.train().unwrap());
    assert_eq!(loss(&job, &mut card).to_bits(), loss(&job, &mut plain).to_bits());
    assert_eq!(state(&job, &mut card), state(&job, &mut plain));
    for runner in [&mut card, &mut plain] {
        feed(&job, runner, 2);
        runner.train().unwrap();
    }
    assert_eq!(loss(&job, &mut card).to_bits(), loss(&job, &mut plain).to_bits());
    assert_eq!(state(&job, &mut card), state(&job, &mut plain));
}

/// Nothing stays on the card, and a network that is launched call by call has no graphs to count.
#[test]
fn a_profile_leaves_nothing_behind() {
    if !on_a_simulated_card("profile::a_profile_leaves_nothing_behind", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    let used = counts()[1];
    assert_eq!(profiled(&job, &mut card).programs[0].graphs.len(), 2);
    let pinned = rules::alive();
    card.profile(0).unwrap();
    assert_eq!((counts()[1], rules::alive()), (used, pinned));
    // SAFETY: this process runs this test alone.
    unsafe { std::env::set_var("GPUMEM_LAUNCH_BLOCKING", "1") };
    let blocking = profiled(&job, &mut load(&job));
    assert!(blocking.programs.iter().all(|program| program.graphs.is_empty()));
    assert!(blocking.programs[0].launches.iter().all(|launch| launch.us.len() == REPETITIONS));
}

/// cuDNN's device property, which an older version has not, and whether cuBLASLt's Relu keeps NaN.
#[test]
fn a_card_says_what_its_libraries_do() {
    let name = "profile::a_card_says_what_its_libraries_do";
    const VARIABLES: [&str; 2] = ["GPUMEM_SIMULATED_KEEPS_NAN", "GPUMEM_SIMULATED_CUDNN_REFUSES"];
    let is_old = std::env::var(VARIABLES[1]).as_deref() == Ok("property");
    let breaks = "GPUMEM_SIMULATED_BREAKS";
    if !on_a_simulated_card_with_cudnn(name, &[]) {
        for (variable, value) in
            [(VARIABLES[0], "1"), (VARIABLES[1], "property"), ("GPUMEM_SIMULATED_REFUSES", "6"), (breaks, "1")]
        {
            assert!(!on_a_simulated_card_with_cudnn(name, &[(variable, value)]));
        }
        return;
    }
    let device = Cuda::new(0).unwrap();
    let before = counts();
    let facts = device.facts().unwrap();
    assert_eq!((counts()[1], product_counts()[..2].to_vec()), (before[1], vec![0, 0]), "bytes, handles and objects");
    let record = recorded::card(&facts);
    assert_eq!(facts.device_property.as_ref().unwrap().is_none(), is_old);
    if std::env::var_os(breaks).is_some() {
        // What the one library fails with is not in the way of what the other says.
        let text = record["nan_products"]["failed"].as_str().unwrap();
        assert!(text.contains("CUBLAS_STATUS_INTERNAL_ERROR") && record["device_property"].is_object(), "{record}");
        return;
    }
    let nan_products = facts.nan_products.unwrap();
    let keeps = std::env::var_os(VARIABLES[0]).is_some();
    assert_eq!(nan_products.len(), 9);
    for found in &nan_products {
        let is_refused = found.epilogue == "RELU_BIAS" && std::env::var_os("GPUMEM_SIMULATED_REFUSES").is_some();
        let expected = if is_refused { None } else { Some(keeps || found.epilogue == "DEFAULT") };
        assert_eq!(found.keeps_nan, expected, "{found:?}");
    }
    assert_eq!(nan_products[8].element, Element::F16);
    assert_eq!((&record["name"], &record["capability"]), (&"Simulated card".into(), &"8.0".into()));
    assert_eq!(record["nan_products"][1]["epilogue"], "RELU");
    assert_eq!(record["device_property"]["multiProcessorCount"], if is_old { Value::Null } else { 4.into() });
    assert!(record["slug"].is_null(), "no card of the table: {record}");
}
