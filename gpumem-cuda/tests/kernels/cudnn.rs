//! Convolutions that go to cuDNN: which operations run as one, and that the numbers stay those of the CPU backend.

use crate::host::harness::graphs::{chain, compile, join, layer, numbers, plan};
use crate::host::{CAPABILITY, Products};
use crate::{check, check_narrow, gradients};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::place::place;
use gpumem_core::operation::Operations;
use gpumem_core::program::Slot;
use gpumem_cuda::Call;
use gpumem_cuda::convolution::{Convolution, Pass};
use gpumem_cuda::operations::LaunchContext;
use gpumem_cuda::product::{Element, Scratch};
use gpumem_cuda::program_calls::{OperationCalls, steps, steps_where};

fn sequence(dims: &[u64], text: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, text)
    }
}

/// A training step, or without `training` the forward pass, with its tensors placed.
fn placed(training: Option<Training>, build: impl Fn(&mut Graph) -> NodeId) -> Placed {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    compile(&lower(&graph, &[output], &Options { training }).unwrap(), 3)
}

fn library(placed: &Placed) -> Vec<OperationCalls> {
    Products::Library.steps(placed, 3, (Precision::F32, CAPABILITY), gradients().1)
}

fn convolutions(steps: &[OperationCalls]) -> Vec<Convolution> {
    let calls = steps.iter().flat_map(|step| &step.calls);
    let convolution = |call: &Call| match call {
        Call::Convolution(convolution) => Some(*convolution),
        _ => None,
    };
    calls.filter_map(convolution).collect()
}

/// Operations of each step that has to do with a convolution, and what it calls.
fn summary(steps: &[OperationCalls]) -> Vec<String> {
    let text = |call: &Call| match call {
        Call::Product(_) => "product".to_string(),
        Call::Attention(_) => "attention".to_string(),
        Call::Recurrence(_) => "recurrence".to_string(),
        Call::Passage(_) => "copy".to_string(),
        Call::Exchange(_) => "exchange".to_string(),
        Call::Kernel(launch) => launch.kernel.entry.to_string(),
        Call::Convolution(it) => {
            let marks = [(it.bias.is_some(), "+bias"), (it.relu, "+relu"), (it.accumulate, "+added")];
            let marks: String = marks.into_iter().filter(|(is, _)| *is).map(|(_, text)| text).collect();
            format!("{:?}{marks}", it.pass)
        }
    };
    let line =
        |step: &OperationCalls| format!("{} {}", step.count, step.calls.iter().map(text).collect::<Vec<_>>().join(" "));
    let all = steps.iter().map(line);
    all.filter(|line| {
        line.contains("ward") && (line.contains("convolution_") || line.contains("Forward") || line.contains("Back"))
    })
    .collect()
}

#[test]
fn convolutions_and_their_gradients_go_to_the_library() {
    let text = "Conv2d(4, 3) | Relu | Conv2d(5, 1, bias = false) | Relu | Conv2d(2, 3)";
    let training = placed(Some(gradients().0), sequence(&[3, 9, 8], text));
    assert_eq!(
        summary(&library(&training)),
        // A Relu without a bias before it is a pass of its own.
        [
            "2 Forward+bias+relu",
            "1 Forward",
            "1 Forward+bias",
            "1 BackwardFilter convolution_backward_bias",
            "1 BackwardData",
            "1 BackwardFilter",
            "1 BackwardData",
            "1 BackwardFilter convolution_backward_bias",
            "1 BackwardData",
        ]
        .map(str::to_string)
    );
    let inference = placed(None, sequence(&[3, 9, 8], text));
    assert_eq!(summary(&library(&inference)), ["2 Forward+bias+relu", "1 Forward", "1 Forward+bias"]);
    // Without the library nothing of it is left.
    let own = Products::Own.steps(&training, 3, (Precision::F32, CAPABILITY), gradients().1);
    assert!(convolutions(&own).is_empty());
}

/// Sizes, options and tensors of a call are those of the layer.
#[test]
fn a_call_says_what_the_layer_says() {
    let text = "Conv2d(8, [3; 4], stride = [2; 1], padding = [1; 3], dilation = [1; 2], groups = 2)";
    let placed = placed(Some(gradients().0), sequence(&[6, 11, 13], text));
    let all = convolutions(&library(&placed));
    let find = |pass: Pass| *all.iter().find(|it| it.pass == pass).unwrap();
    // The loss has a gradient of its input as well.
    let convolution = |slot: Slot| placed.program.operations.iter().rfind(|it| it.written(slot).is_some());
    let operation = |slot: Slot| convolution(slot).unwrap();
    let bytes = |tensor: u32| placed.bytes[tensor as usize];
    let scratch =
        |slot: Slot| operation(slot).written(Slot::Workspace).map(|tensor| Scratch { tensor, bytes: bytes(tensor) });
    let forward = find(Pass::Forward);
    let expected = Convolution {
        pass: Pass::Forward,
        batch: 3,
        in_channels: 6,
        out_channels: 8,
        input: [11, 13],
        output: [6, 13],
        kernel: [3, 4],
        stride: [2, 1],
        padding: [1, 3],
        dilation: [1, 2],
        groups: 2,
        x: operation(Slot::Output).read(Slot::Input(0)).unwrap(),
        w: operation(Slot::Output).read(Slot::Input(1)).unwrap(),
        y: operation(Slot::Output).written(Slot::Output).unwrap(),
        bias: operation(Slot::Output).read(Slot::Input(2)),
        addend: None,
        relu: false,
        accumulate: false,
        element: Element::F32,
        tf32: false,
        tensor_cores: false,
        channels_last: false,
        workspace: scratch(Slot::Output),
        deterministic: false,
    };
    assert_eq!(forward, expected);
    let (data, filter) = (find(Pass::BackwardData), find(Pass::BackwardFilter));
    let dy = operation(Slot::InputGradient(1)).read(Slot::Gradient).unwrap();
    let dx = operation(Slot::InputGradient(0)).written(Slot::InputGradient(0)).unwrap();
    let dw = operation(Slot::InputGradient(1)).written(Slot::InputGradient(1)).unwrap();
    let gradient = Convolution { bias: None, y: dy, ..forward };
    let workspace = scratch(Slot::InputGradient(0));
    assert_eq!(data, Convolution { pass: Pass::BackwardData, x: dx, workspace, ..gradient });
    let workspace = scratch(Slot::InputGradient(1));
    assert_eq!(filter, Convolution { pass: Pass::BackwardFilter, w: dw, workspace, ..gradient });
    // Filters of more than one pixel have a workspace in every pass.
    assert!(all.iter().all(|it| it.workspace.is_some()));
}

/// Forward, a transpose is what the gradient of a convolution's images is; and a convolution makes the gradient of what it is given.
#[test]
fn transposes_are_gradients_of_convolutions() {
    let text =
        "ConvTranspose2d(4, 3, stride = 2, output_padding = 1, bias = false) | ConvTranspose2d(2, [2; 3]) | Relu";
    let training = placed(Some(gradients().0), sequence(&[3, 5, 4], text));
    let backward =
        ["1 BackwardFilter convolution_transposed_backward_bias", "1 Forward", "1 BackwardFilter", "1 Forward"];
    // The library has no bias behind a gradient of f32.
    let found = summary(&library(&training));
    assert_eq!(found, [&["1 BackwardData", "2 convolution_transposed_forward"][..], &backward].concat());
    let narrow = Products::Library.steps(&training, 3, (Precision::Bf16, CAPABILITY), gradients().1);
    assert_eq!(summary(&narrow), [&["1 BackwardData", "2 BackwardData+bias+relu"][..], &backward].concat());
    let first = convolutions(&narrow)[0];
    let size = (first.in_channels, first.input, first.out_channels, first.output);
    assert_eq!(size, (4, [12, 10], 3, [5, 4]));
    // What it writes is what it has for its images, its weight lies as the layer's does.
    let operation = training.program.operations.iter().find(|it| it.written(Slot::Output) == Some(first.x)).unwrap();
    let tensors = [Slot::Input(0), Slot::Input(1)].map(|slot| operation.read(slot).unwrap());
    assert_eq!([first.y, first.w], tensors);
}

/// Where there are more windows over what a transpose writes than it is given, it is no gradient.
#[test]
fn transposes_with_room_for_another_window_are_not_for_the_library() {
    for (output_padding, passes) in [(0, 3), (1, 3), (2, 0)] {
        let text =
            format!("ConvTranspose2d(4, 2, stride = 2, dilation = 3, output_padding = {output_padding}, bias = false)");
        let training = placed(Some(gradients().0), sequence(&[3, 5, 4], &text));
        assert_eq!(convolutions(&library(&training)).len(), passes, "{text}");
    }
}

#[test]
fn transposes_through_the_library_have_the_same_numbers() {
    let two = |groups: u64| {
        let text = format!("ConvTranspose2d(6, 3, stride = [2; 1], padding = 1, groups = {groups})");
        move |graph: &mut Graph| {
            let input = graph.input(numbers(&[6, 5, 4])).unwrap();
            // Both are given the same, so that gradients of the input are added.
            let branches = [layer(graph, input, &text), layer(graph, input, &text)];
            let sum = join(graph, &branches, "Add");
            layer(graph, sum, "Relu")
        }
    };
    check("transposes", 3, two(1));
    check_narrow("transposes", 3, two(1));
    check("transposes in groups", 3, two(3));
    check_narrow("transposes in groups", 3, two(3));
    let text = "Conv2d(5, 1) | ConvTranspose2d(4, 2, stride = 2) | Relu | ConvTranspose2d(3, 3, stride = 2, output_padding = 1, bias = false)";
    check("a decoder", 3, sequence(&[3, 5, 4], text));
    check_narrow("a transpose with a Relu", 3, sequence(&[3, 5, 4], "ConvTranspose2d(4, 2, stride = 2) | Relu"));
    let text =
        "ConvTranspose2d(5, 3, stride = 2, output_padding = 1, bias = false) | ConvTranspose2d(4, 2, stride = 2)";
    check_narrow("a decoder without", 3, sequence(&[3, 5, 4], text));
}

/// The library pads with as much at the end as in front; with anything else the own kernels run.
#[test]
fn larger_padding_at_the_end_is_not_for_the_library() {
    for (padding, passes) in [("\"same\"", 0), ("0", 3)] {
        let text = format!("Conv2d(8, [3; 4], padding = {padding})");
        let training = placed(Some(gradients().0), sequence(&[6, 11, 13], &text));
        assert_eq!(convolutions(&library(&training)).len(), passes, "{text}");
        let inference = placed(None, sequence(&[6, 11, 13], &format!("{text} | Relu")));
        assert_eq!(convolutions(&library(&inference)).len(), passes.min(1), "{text}");
    }
    // Odd kernels have as much on both sides.
    let odd = placed(None, sequence(&[6, 11, 13], "Conv2d(8, [3; 5], padding = \"same\", dilation = [2; 1])"));
    assert_eq!(convolutions(&library(&odd))[0].padding, [2, 2]);
}

#[test]
fn settings_reach_the_convolutions() {
    let placed = placed(None, sequence(&[3, 7, 9], "Conv2d(4, 1)"));
    let of = |precision, tf32, deterministic| {
        let (optimizer, library, cudnn) = (gradients().1, false, true);
        let setting = LaunchContext {
            rank: 0,
            batch: 3,
            precision,
            optimizer,
            capability: CAPABILITY,
            multiprocessors: 132,
            tf32,
            deterministic,
            library,
            cudnn,
            operations: &Operations::NONE,
        };
        let it = convolutions(&steps(&placed, setting).unwrap())[0];
        assert_eq!(it.workspace.map(|it| it.bytes), Some(256), "a kernel of one pixel has the tables of an engine");
        (it.element, it.tf32, it.deterministic)
    };
    assert_eq!(of(Precision::F32, false, true), (Element::F32, false, true));
    assert_eq!(of(Precision::F32, true, false), (Element::F32, true, false));
    assert_eq!(of(Precision::Bf16, true, false), (Element::Bf16, false, false));
    assert_eq!(of(Precision::F16, false, false), (Element::F16, false, false));
}

/// What the library has no algorithm for runs with the own kernels, which fuse what they can; nothing of it is left half.
#[test]
fn without_an_algorithm_the_own_kernels_run_as_if_there_were_no_library() {
    let text = "Conv2d(4, 3) | Relu | Conv2d(5, 1, bias = false) | Relu6 | Conv2d(2, 3)";
    let placed = placed(Some(gradients().0), sequence(&[3, 9, 8], text));
    let (precision, optimizer, library) = (Precision::F32, gradients().1, false);
    let setting = LaunchContext {
        rank: 0,
        batch: 3,
        precision,
        optimizer,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32: false,
        deterministic: false,
        library,
        cudnn: true,
        operations: &Operations::NONE,
    };
    let own = steps(&placed, LaunchContext { cudnn: false, ..setting }).unwrap();
    let refused = steps_where(&placed, setting, &mut |call| Ok(!matches!(call, Call::Convolution(_)))).unwrap();
    assert_eq!(refused, own);
    // Where the library has the convolution alone, it is worth more than the own kernel with the rectifier.
    let alone = |call: &Call| !matches!(call, Call::Convolution(Convolution { relu: true, .. }));
    let alone = steps_where(&placed, setting, &mut |call| Ok(alone(call))).unwrap();
    assert_eq!(summary(&alone)[..3], ["1 Forward+bias", "1 Forward", "1 Forward+bias"]);
    // A failure is one, and not a reason to go on.
    let broken = steps_where(&placed, setting, &mut |_| Err(Error::Damaged("a test")));
    assert_eq!(broken.unwrap_err(), Error::Damaged("a test"));
}

/// A value that something else reads too must be written, and is not that of the Relu.
#[test]
fn a_value_that_is_needed_elsewhere_is_not_fused_away() {
    let branches = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 7, 6])).unwrap();
        let hidden = layer(graph, input, "Conv2d(4, 3)");
        let active = layer(graph, hidden, "Relu");
        join(graph, &[hidden, active], "Add")
    };
    for training in [None, Some(gradients().0)] {
        assert_eq!(summary(&library(&placed(training, branches)))[0], "1 Forward+bias");
    }
    check("Relu of a value that is added", 3, branches);
}

/// The plan may put the Relu's output where the convolution's workspace was: it runs without one then.
#[test]
fn a_workspace_is_left_where_the_output_lies() {
    let mut placed = placed(None, sequence(&[3, 9, 8], "Conv2d(4, 3) | Relu"));
    let operations = &placed.program.operations;
    let workspace = operations[0].written(Slot::Workspace).unwrap();
    let output = operations[1].written(Slot::Output).unwrap();
    let input = operations[0].read(Slot::Input(0)).unwrap();
    placed.offsets[output as usize] = placed.offsets[workspace as usize];
    let fused = convolutions(&library(&placed))[0];
    assert_eq!((fused.relu, fused.workspace), (true, None));
    // Where it lies on what the convolution reads, they stay apart.
    placed.offsets[output as usize] = placed.offsets[input as usize];
    assert_eq!(summary(&library(&placed)), ["1 Forward+bias"]);
}

#[test]
fn what_the_library_cannot_count_runs_with_the_own_kernels() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[64, 1024, 1024])).unwrap();
    let output = chain(&mut graph, input, "Conv2d(1, 3)");
    let program = lower(&graph, &[output], &Options { training: None }).unwrap();
    let on = |batch| {
        let placed = place(&plan(&program, batch, Precision::F32)).unwrap();
        let optimizer = gradients().1;
        Products::Library.steps(&placed, batch, (Precision::F32, CAPABILITY), optimizer)
    };
    // 2^31 elements, and a sample less.
    assert_eq!(summary(&on(32)), ["1 convolution_forward"]);
    assert_eq!(summary(&on(31)), ["1 Forward+bias"]);
}

#[test]
fn networks_give_what_the_operations_give() {
    for (dims, text) in [
        (&[3, 9, 8][..], "Conv2d(4, 3) | Relu | Conv2d(5, 1, bias = false) | Relu | Conv2d(2, 3)"),
        (
            &[2, 9, 8],
            "Conv2d(6, 3, padding = 1) | Relu(inplace = true) | Conv2d(6, 3, groups = 3) | Relu(inplace = true)",
        ),
        (&[3, 8, 8], "Conv2d(4, 3, stride = 2, bias = false) | BatchNorm2d | Relu | Flatten | Linear(5) | Relu"),
    ] {
        check(text, 3, sequence(dims, text));
    }
    check_narrow("Conv2d | Relu", 2, sequence(&[3, 7, 6], "Conv2d(5, 3, stride = 2, padding = 1) | Relu"));
}
