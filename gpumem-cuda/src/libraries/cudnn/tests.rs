use super::functions::FUNCTIONS;
use super::*;
use crate::calls::Argument;
use crate::calls::convolution::Pass;
use crate::calls::convolution::tests::example;
use crate::calls::product::Scratch;

/// Checks that the sessions' stand-in for the library has exactly the functions that preflight asks for. Every function that is called is in it,
/// because sessions run with the stand-in in tests: cudarc would panic at the first call of a missing function.
#[test]
fn preflight_asks_for_every_function_that_is_called() {
    let stand_ins = [
        include_str!("../../../tests/stand_ins/convolutions.cpp"),
        include_str!("../../../tests/stand_ins/graphs.h"),
        include_str!("../../../tests/stand_ins/recurrences.h"),
    ];
    let name = |line: &str| Some(line.strip_prefix("API ")?.split('(').next()?.to_string());
    let mut there: Vec<String> = stand_ins
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(name)
        .filter(|name| name.starts_with("cudnn"))
        .collect();
    there.sort();
    assert_eq!(there, FUNCTIONS);
}

/// Returns an address for a tensor, a MiB above that of the tensor before.
fn address(tensor: Argument) -> Result<CUdeviceptr, Error> {
    Ok(0x7f00_0000_0000 + (u64::from(tensor) << 20))
}

#[test]
fn what_a_convolution_has_not_has_no_address() {
    let plain = Convolution { workspace: None, ..example(Pass::BackwardData) };
    let [x, w, y, scratch, bias] = [1, 2, 3, 4, 5].map(|tensor| address(tensor).unwrap());
    assert_eq!(Places::of(&plain, &address), Ok(Places { x, w, y, bias: 0, addend: 0, workspace: (0, 0) }));
    let full = Convolution { bias: Some(5), ..example(Pass::Forward) };
    assert_eq!(Places::of(&full, &address), Ok(Places { x, w, y, bias, addend: 0, workspace: (scratch, 4096) }));
}

#[test]
fn a_workspace_in_the_wrong_place_is_an_error() {
    let error = Places::of(&example(Pass::Forward), &|_| Ok(128)).unwrap_err();
    assert!(error.to_string().contains("multiple of 256 bytes"), "{error}");
    let outside = Error::Range { offset: 1, length: 2, arena: 2 };
    assert_eq!(Places::of(&example(Pass::Forward), &|_| Err(outside.clone())), Err(outside.clone()));
}

#[test]
fn a_choice_is_that_of_all_convolutions_of_its_kind() {
    let one = Convolution { bias: Some(5), ..example(Pass::Forward) };
    let other =
        Convolution { x: 7, w: 8, y: 9, bias: Some(10), workspace: Some(Scratch { tensor: 11, bytes: 4096 }), ..one };
    assert_eq!(one.of_any(), other.of_any());
    let less = Convolution { workspace: Some(Scratch { tensor: 4, bytes: 4095 }), ..one };
    for different in [Convolution { bias: None, ..one }, less, Convolution { deterministic: true, ..one }] {
        assert_ne!(one.of_any(), different.of_any());
    }
}

#[test]
fn failures_name_the_convolution_and_the_status() {
    let what = format!("choosing an algorithm for {}", example(Pass::BackwardFilter));
    let error = failure(what)(CudnnError(Status::CUDNN_STATUS_INTERNAL_ERROR));
    assert_eq!(
        error.to_string(),
        "CUDA: cuDNN: choosing an algorithm for filter gradient of the convolution 5x6x11x13 to 8x6x13, kernel 3x4, stride \
         2x1, padding 1x3, dilation 1x2, groups 2 in F32, workspace of 4096 bytes: CUDNN_STATUS_INTERNAL_ERROR"
    );
}

#[test]
fn only_some_statuses_leave_another_way() {
    let unsupported = [Status::CUDNN_STATUS_NOT_SUPPORTED, Status::CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH];
    let wrong = [Status::CUDNN_STATUS_BAD_PARAM, Status::CUDNN_STATUS_INVALID_VALUE];
    let broken = [
        Status::CUDNN_STATUS_NOT_INITIALIZED,
        Status::CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED,
        Status::CUDNN_STATUS_INTERNAL_ERROR,
        Status::CUDNN_STATUS_EXECUTION_FAILED,
    ];
    let all = |statuses: &[Status]| {
        statuses.iter().map(|&status| (is_unsupported(CudnnError(status)), is_refused(CudnnError(status)))).collect()
    };
    let (unsupported, wrong, broken): (Vec<_>, Vec<_>, Vec<_>) = (all(&unsupported), all(&wrong), all(&broken));
    assert!(unsupported.iter().all(|&found| found == (true, true)));
    assert!(wrong.iter().all(|&found| found == (false, true)));
    assert!(broken.iter().all(|&found| found == (false, false)));
}

#[test]
#[ignore = "needs libcudnn, as above, and no driver"]
fn without_a_driver_there_is_no_handle_and_no_panic() {
    library_is_there();
    let error = handle().unwrap_err().to_string();
    assert!(error.starts_with("CUDA: cuDNN: making a handle (a network runs without the library"), "{error}");
    assert!(error.contains("CUDNN_STATUS_"), "{error}");
}

/// Fails if the library is not found.
pub(super) fn library_is_there() {
    let libraries = crate::libraries::preflight::libraries();
    libraries.iter().find(|library| library.name.contains("cuDNN")).unwrap().found.as_ref().unwrap();
}
