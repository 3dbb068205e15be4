use super::property::text;
use super::*;
use crate::calls::convolution::tests::example;
use crate::calls::product::{Element, Scratch};
use crate::libraries::cudnn::tests::library_is_there;

fn engine(notes: &[Note]) -> Engine {
    Engine::noted(7, &notes.iter().map(|&note| note as u32).collect::<Vec<u32>>())
}

#[test]
fn engines_keep_to_what_is_asked() {
    let (plain, fast) = (example(Pass::Forward), Convolution { tensor_cores: true, ..example(Pass::Forward) });
    let deterministic = Convolution { deterministic: true, ..plain };
    let slow = engine(&[Note::CUDNN_NUMERICAL_NOTE_WINOGRAD]);
    assert_eq!([plain, fast, deterministic].map(|it| slow.is_usable(&it)), [true, false, true]);
    let on_tensor_cores = engine(&[Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE]);
    assert_eq!([plain, fast, deterministic].map(|it| on_tensor_cores.is_usable(&it)), [true; 3]);
    let varies = [Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC];
    assert_eq!([plain, fast, deterministic].map(|it| engine(&varies).is_usable(&it)), [true, true, false]);
    for rounds in
        [Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION]
    {
        let rounds = engine(&[Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, rounds]);
        assert_eq!([plain, fast, deterministic].map(|it| rounds.is_usable(&it)), [false; 3]);
    }
    // Newer versions of the library have notes that this code does not know.
    assert_eq!(Engine::noted(7, &[0, 77]), on_tensor_cores);
}

#[test]
fn a_kind_that_an_older_version_does_not_know_is_refused() {
    let refuses = |status| is_refused(backend::of_kind(CudnnError(status)));
    assert!(refuses(Status::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED));
    assert!(!refuses(Status::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED));
}

#[test]
fn tensors_lie_as_they_are_said_to() {
    assert_eq!(lie([2, 3, 4, 5], false), Ok([[2, 3, 4, 5], [60, 20, 5, 1]]));
    assert_eq!(lie([2, 3, 4, 5], true), Ok([[2, 3, 4, 5], [60, 1, 15, 3]]));
    assert_eq!(lie([1 << 63, 1, 1, 1], true), Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)));
}

/// Checks that the properties of an absent card, and an engine's settings, are read back as they were set.
#[test]
#[ignore = "needs libcudnn, as above, and a driver that answers its version, as scripts/cudnn-check has one"]
fn the_library_tells_what_it_knows() {
    library_is_there();
    let cards = include_str!("../../../../tests/figures/devices.json");
    let h200 = cards.split("\"h200\":").nth(1).unwrap().trim_start();
    let given = &h200[..=h200.find('}').unwrap()];
    let card = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).unwrap();
    card.set(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, given.as_bytes()).unwrap();
    let card = card.finalize().unwrap();
    let found: serde_json::Value = serde_json::from_str(&text(&card).unwrap()).unwrap();
    let given: serde_json::Value = serde_json::from_str(given).unwrap();
    for name in ["deviceVer", "multiProcessorCount", "l2CacheSize", "deviceName"] {
        assert_eq!(found[name], given[name], "{name}");
    }
    let scratch = Some(Scratch { tensor: 4, bytes: 64 << 20 });
    let fast = Convolution {
        in_channels: 64,
        out_channels: 64,
        input: [16, 16],
        output: [16, 16],
        kernel: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
        groups: 1,
        element: Element::Bf16,
        tensor_cores: true,
        channels_last: true,
        workspace: scratch,
        ..example(Pass::Forward)
    };
    let knobs = choose(&fast, fast.room(), Target::Card(&card), |it| Ok(Some(it.knobs().unwrap()))).unwrap().unwrap();
    println!("{knobs:?}");
    assert!(!knobs.is_empty());
}
