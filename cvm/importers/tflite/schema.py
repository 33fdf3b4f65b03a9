"""The parts of the schema of .tflite files that the importer reads: tables, operators with their
options, element types.
"""

from cvm.dialect.types.tensor_types import ELEMENT_TYPES, ElementType

TABLES = {
    "Model": "version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str "
    "buffers:[Buffer]",
    "OperatorCode": "deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32",
    "SubGraph": "tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str",
    "Tensor": "shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters "
    "is_variable:bool sparsity:SparsityParameters "
    "shape_signature:[i32]",
    "QuantizationParameters": "min:[f32] max:[f32] scale:[f32] "
    "zero_point:[i64] details_type:u8 "
    "details:table "
    "quantized_dimension:i32",
    "SparsityParameters": "traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": "format:i8 dense_size:i32 array_segments_type:u8 array_segments:table "
    "array_indices_type:u8 array_indices:table",
    "Int32Vector": "values:[i32]",
    "Uint16Vector": "values:[u16]",
    "Uint8Vector": "values:[u8]",
    "Buffer": "data:[u8] offset:u64 size:u64",
    "Operator": "opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options_type:u8 "
    "builtin_options:table custom_options:[u8] "
    "custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32]",
}

_CONV = "padding:i8 stride_w:i32 stride_h:i32"
_POOL = f"{_CONV} filter_width:i32 filter_height:i32 activation:i8"
_SUM = "activation:i8 pot_scale_int16:bool=1"
_RESIZE = "align_corners:bool half_pixel_centers:bool"
OPTIONS = {
    "CONV_2D": f"{_CONV} activation:i8 dilation_w:i32=1 dilation_h:i32=1",
    "DEPTHWISE_CONV_2D": f"{_CONV} depth_multiplier:i32 "
    "activation:i8 dilation_w:i32=1 "
    "dilation_h:i32=1",
    "TRANSPOSE_CONV": f"{_CONV} activation:i8",
    "FULLY_CONNECTED": "activation:i8 weights_format:i8 keep_num_dims:bool",
    "BATCH_MATMUL": "adj_x:bool adj_y:bool",
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _POOL),
    **dict.fromkeys(("ADD", "SUB"), _SUM),
    **dict.fromkeys(("MUL", "DIV", "L2_NORMALIZATION"), "activation:i8"),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"),
        "keep_dims:bool",
    ),
    "SOFTMAX": "beta:f32",
    "LEAKY_RELU": "alpha:f32",
    "GELU": "approximate:bool",
    "CONCATENATION": "axis:i32 activation:i8",
    "RESHAPE": "new_shape:[i32]",
    "SQUEEZE": "squeeze_dims:[i32]",
    "STRIDED_SLICE": "begin_mask:i32 end_mask:i32 ellipsis_mask:i32 "
    "new_axis_mask:i32 shrink_axis_mask:i32 "
    "offset:bool",
    "PACK": "values_count:i32 axis:i32",
    "UNPACK": "num:i32 axis:i32",
    "SPLIT": "num_splits:i32",
    "SPLIT_V": "num_splits:i32",
    "GATHER": "axis:i32 batch_dims:i32",
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), "output_type:i8"),
    **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), "block_size:i32"),
    "MIRROR_PAD": "mode:i8",
    "CAST": "in_data_type:i8 out_data_type:i8",
    "SHAPE": "out_type:i8",
    "CUMSUM": "exclusive:bool reverse:bool",
    "ONE_HOT": "axis:i32",
    "RESIZE_BILINEAR": f"new_height:- new_width:- {_RESIZE}",
    "RESIZE_NEAREST_NEIGHBOR": _RESIZE,
    "SVDF": "rank:i32 activation:i8 asymmetric_quantize_inputs:bool",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "activation:i8 cell_clip:f32 proj_clip:f32 time_major:bool "
    "asymmetric_quantize_inputs:bool",
    "CALL_ONCE": "init_subgraph_index:i32",
    "VAR_HANDLE": "container:str shared_name:str",
}  # by operator: the fields of its options

OPTION_TYPES = {
    "CONV_2D": 1,
    "DEPTHWISE_CONV_2D": 2,
    "AVERAGE_POOL_2D": 5,
    "MAX_POOL_2D": 5,
    "SVDF": 6,
    "FULLY_CONNECTED": 8,
    "SOFTMAX": 9,
    "CONCATENATION": 10,
    "ADD": 11,
    "L2_NORMALIZATION": 12,
    "RESIZE_BILINEAR": 15,
    "RESHAPE": 17,
    "SPACE_TO_DEPTH": 19,
    "MUL": 21,
    "GATHER": 23,
    "MEAN": 27,
    "SUM": 27,
    "REDUCE_MAX": 27,
    "REDUCE_MIN": 27,
    "REDUCE_PROD": 27,
    "REDUCE_ANY": 27,
    "REDUCE_ALL": 27,
    "SUB": 28,
    "DIV": 29,
    "SQUEEZE": 30,
    "STRIDED_SLICE": 32,
    "SPLIT": 35,
    "CAST": 37,
    "ARG_MAX": 40,
    "TRANSPOSE_CONV": 49,
    "SHAPE": 55,
    "ARG_MIN": 57,
    "PACK": 59,
    "ONE_HOT": 61,
    "UNPACK": 64,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
    "RESIZE_NEAREST_NEIGHBOR": 74,
    "LEAKY_RELU": 75,
    "MIRROR_PAD": 77,
    "SPLIT_V": 79,
    "DEPTH_TO_SPACE": 94,
    "BATCH_MATMUL": 101,
    "CUMSUM": 102,
    "VAR_HANDLE": 111,
    "GELU": 116,
    "CALL_ONCE": 103,
}  # by operator: the number of its options in the union

SCHEMA = {**TABLES, **OPTIONS}

_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED
HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU
RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD
REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE
RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4
NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE
BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM
MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT
"""
OPERATORS = tuple(_OPERATORS.split())  # by the number of BuiltinOperator

TYPES = (
    "FLOAT32 FLOAT16 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT64 COMPLEX128 "
    "UINT64 RESOURCE VARIANT UINT32 "
)
TYPES = tuple((TYPES + "UINT16 INT4 BFLOAT16 INT2 UINT4").split())  # by the number of TensorType
ELEMENTS: dict[str, ElementType] = {
    name: ELEMENT_TYPES[ours]
    for name, ours in (
        ("FLOAT32", "f32"),
        ("FLOAT16", "f16"),
        ("FLOAT64", "f64"),
        ("INT32", "i32"),
        ("UINT8", "ui8"),
        ("INT64", "i64"),
        ("BOOL", "i1"),
        ("INT16", "i16"),
        ("INT8", "i8"),
        ("UINT64", "ui64"),
        ("UINT32", "ui32"),
        ("UINT16", "ui16"),
        ("COMPLEX64", "complex<f32>"),
        ("COMPLEX128", "complex<f64>"),
        ("INT4", "i8"),
    )
}

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
