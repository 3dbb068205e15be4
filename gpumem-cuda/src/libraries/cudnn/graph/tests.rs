use super::*;
use crate::calls::convolution::tests::example;

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
    // Newer versions of the library have notes that this one does not know.
    assert_eq!(Engine::noted(7, &[0, 77]), on_tensor_cores);
}

#[test]
fn tensors_lie_as_they_are_said_to() {
    assert_eq!(lie([2, 3, 4, 5], false), Ok([[2, 3, 4, 5], [60, 20, 5, 1]]));
    assert_eq!(lie([2, 3, 4, 5], true), Ok([[2, 3, 4, 5], [60, 1, 15, 3]]));
    assert_eq!(lie([1 << 63, 1, 1, 1], true), Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)));
}
