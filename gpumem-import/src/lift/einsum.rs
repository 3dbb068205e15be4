//! Sums of products by letters.

use super::shapes::{MOST_AXES, elements, permuted, reshape_lifted};
use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::model::{Argument, Node, ValueId};

/// A value with a letter for each axis of a sample.
struct Lettered {
    value: ValueId,
    letters: Vec<char>,
}

/// Lifts `einsum`. Of more than two values the first two are joined, and their product with the next, as PyTorch does.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let Some(equation) = node.text("equation") else { return refuse("it has no equation") };
    let Some(Argument::Tensors(values)) = node.argument("tensors") else { return refuse("it has no tensors") };
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let Some((left, right)) = equation.split_once("->").filter(|_| !equation.contains('.')) else {
        return refuse("its equation has no result, or dots");
    };
    let output = node.outputs[0];
    let values: Vec<ValueId> = values.iter().copied().flatten().collect();
    let mut operands = Vec::new();
    for (value, letters) in values.iter().zip(left.split(',')) {
        let letters = letters_of_sample(lift, *value, letters)?;
        operands.push(Lettered { value: lift.operand(*value)?, letters });
    }
    let result = letters_of_sample(lift, output, right)?;
    if operands.len() != left.split(',').count() {
        return refuse("its equation has another number of values");
    }
    // Axes that only one value has, and not the result, are summed first.
    for place in 0..operands.len() {
        let is_needed = |letter: &char| {
            result.contains(letter)
                || operands.iter().enumerate().any(|(at, other)| at != place && other.letters.contains(letter))
        };
        let dims: Vec<i64> =
            (1..).zip(&operands[place].letters).filter(|(_, letter)| !is_needed(letter)).map(|(at, _)| at).collect();
        if !dims.is_empty() {
            operands[place] = summed(lift, index, &operands[place], &dims);
        }
    }
    while operands.len() > 2 {
        let rest = operands.split_off(2);
        let is_kept =
            |letter: &&char| result.contains(letter) || rest.iter().any(|other| other.letters.contains(letter));
        let both = operands.iter().flat_map(|operand| &operand.letters);
        let mut kept: Vec<char> = Vec::new();
        for letter in both.filter(is_kept) {
            if !kept.contains(letter) {
                kept.push(*letter);
            }
        }
        let joined = joined(lift, index, &operands, &kept)?;
        operands = std::iter::once(joined).chain(rest).collect();
    }
    match &operands[..] {
        [only] => {
            let order = order(&only.letters, &result)?;
            permuted(lift, index, only.value, order, output)
        }
        [a, b] => product(lift, index, [a, b], &result, output),
        _ => refuse("it has no values"),
    }
}

/// Adds the product of two values, with the axes of `result`.
fn product(lift: &mut Lift<'_>, index: usize, [a, b]: [&Lettered; 2], result: &[char], output: ValueId) -> Result {
    match a.letters.iter().any(|letter| b.letters.contains(letter) && !result.contains(letter)) {
        true => contracted(lift, index, [a, b], result, output),
        false => multiplied(lift, index, [a, b], result, output),
    }
}

/// Returns the product of the first two values, with the axes of `letters`.
fn joined(lift: &mut Lift<'_>, index: usize, operands: &[Lettered], letters: &[char]) -> Result<Lettered> {
    let [a, b] = operands else { return refuse("it has no values") };
    let [of_a, of_b] = [a, b].map(|operand| sizes(lift, operand, letters));
    let shape: Vec<u64> = of_a.iter().zip(&of_b).map(|(a, b)| *a.max(b)).collect();
    if shape.len() > MOST_AXES {
        return refuse(format!("a product within it has more than {MOST_AXES} axes"));
    }
    let output = lift.between(&shape);
    product(lift, index, [a, b], letters, output)?;
    Ok(Lettered { value: lift.resolve(output), letters: letters.to_vec() })
}

/// Returns the letters of the axes of a sample.
fn letters_of_sample(lift: &Lift<'_>, value: ValueId, letters: &str) -> Result<Vec<char>> {
    let all: Vec<char> = letters.chars().collect();
    if all.len() != lift.model.values[value].shape.len() || (1..all.len()).any(|at| all[..at].contains(&all[at])) {
        return refuse("its equation takes a diagonal, or has another number of axes");
    }
    let kept = all.iter().enumerate().filter(|(dim, _)| lift.dim(value, *dim as i64).is_some());
    Ok(kept.map(|(_, letter)| *letter).collect())
}

fn summed(lift: &mut Lift<'_>, index: usize, operand: &Lettered, dims: &[i64]) -> Lettered {
    let shape = lift.sample(operand.value);
    let kept: Vec<usize> = (0..operand.letters.len()).filter(|&at| !dims.contains(&(at as i64 + 1))).collect();
    let narrow: Vec<u64> = kept.iter().filter_map(|&at| shape.get(at).copied()).collect();
    let value = lift.between(&if narrow.is_empty() { vec![1] } else { narrow });
    lift.add(index, Layer::new("Sum", operand.value, value).with(Literal::dims(dims)));
    Lettered { value, letters: kept.into_iter().map(|at| operand.letters[at]).collect() }
}

/// Returns the order that takes axes with letters to others, counted from 1.
fn order(from: &[char], to: &[char]) -> Result<Vec<i64>> {
    let place = |letter: &char| from.iter().position(|other| other == letter).map(|at| at as i64 + 1);
    match to.iter().map(place).collect::<Option<Vec<i64>>>() {
        Some(order) if order.len() == from.len() => Ok(order),
        _ => refuse("its result has an axis that no value has"),
    }
}

fn sizes(lift: &Lift<'_>, operand: &Lettered, letters: &[char]) -> Vec<u64> {
    let shape = lift.sample(operand.value);
    let size = |letter: &char| operand.letters.iter().position(|other| other == letter).and_then(|at| shape.get(at));
    letters.iter().map(|letter| size(letter).copied().unwrap_or(1)).collect()
}

/// Brings the axes of a value into the order of `groups`, and merges each group but the first, whose axes stay apart.
fn arranged(lift: &mut Lift<'_>, index: usize, operand: &Lettered, groups: [&[char]; 3]) -> Result<ValueId> {
    let letters = groups.concat();
    let order = order(&operand.letters, &letters)?;
    let turned = lift.between(&sizes(lift, operand, &letters));
    permuted(lift, index, operand.value, order, turned)?;
    let mut shape = sizes(lift, operand, groups[0]);
    shape.extend([groups[1], groups[2]].map(|group| elements(&sizes(lift, operand, group))));
    let merged = lift.between(&shape);
    let turned = lift.resolve(turned);
    reshape_lifted(lift, index, turned, merged)?;
    Ok(lift.resolve(merged))
}

/// Adds a product of matrices, with the axes that both values and the result have before them.
fn contracted(lift: &mut Lift<'_>, index: usize, [a, b]: [&Lettered; 2], result: &[char], output: ValueId) -> Result {
    let is_shared = |letter: &&char| b.letters.contains(letter) && result.contains(letter);
    let shared: Vec<char> = a.letters.iter().filter(is_shared).copied().collect();
    let inner: Vec<char> =
        a.letters.iter().filter(|letter| b.letters.contains(letter) && !result.contains(letter)).copied().collect();
    let only = |operand: &Lettered| -> Vec<char> {
        let rest = operand.letters.iter().filter(|letter| !shared.contains(letter) && !inner.contains(letter));
        rest.copied().collect()
    };
    let (rows, columns) = (only(a), only(b));
    let left = arranged(lift, index, a, [&shared, &rows, &inner])?;
    let right = arranged(lift, index, b, [&shared, &inner, &columns])?;
    let mut shape = sizes(lift, a, &shared);
    shape.push(elements(&sizes(lift, a, &rows)));
    shape.push(elements(&sizes(lift, b, &columns)));
    let product = lift.between(&shape);
    lift.add(index, Layer::join("MatMul", vec![left, right], product));
    let letters = [&shared[..], &rows, &columns].concat();
    let apart = [sizes(lift, a, &shared), sizes(lift, a, &rows), sizes(lift, b, &columns)].concat();
    let split = lift.between(&if apart.is_empty() { vec![1] } else { apart });
    reshape_lifted(lift, index, product, split)?;
    let split = lift.resolve(split);
    permuted(lift, index, split, order(&letters, result)?, output)
}

/// Adds a product of elements, for which both values get the axes of the result.
fn multiplied(lift: &mut Lift<'_>, index: usize, operands: [&Lettered; 2], result: &[char], output: ValueId) -> Result {
    let mut inputs = Vec::new();
    for operand in operands {
        let own: Vec<char> = result.iter().filter(|letter| operand.letters.contains(letter)).copied().collect();
        let turned = lift.between(&sizes(lift, operand, &own));
        permuted(lift, index, operand.value, order(&operand.letters, &own)?, turned)?;
        let (turned, wide) = (lift.resolve(turned), lift.between(&sizes(lift, operand, result)));
        reshape_lifted(lift, index, turned, wide)?;
        inputs.push(lift.resolve(wide));
    }
    lift.add(index, Layer::join("Mul", inputs, output));
    Ok(())
}
