#include "textflag.h"

// The loops of half_amd64.go: eight elements at a time, n is a multiple of it.

// func encodeFloat16x8(dst *byte, src *float32, n int)
TEXT ·encodeFloat16x8(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	SUBQ $8, CX
	JLT  done
	VMOVUPS   (SI), Y0
	VCVTPS2PH $0, Y0, (DI) // to nearest even
	ADDQ      $32, SI
	ADDQ      $16, DI
	JMP  loop
done:
	VZEROUPPER
	RET

// func decodeFloat16x8(dst *float32, src *byte, n int)
TEXT ·decodeFloat16x8(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	SUBQ $8, CX
	JLT  done
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	JMP  loop
done:
	VZEROUPPER
	RET

// func roundFloat16x8(x *float32, n int)
TEXT ·roundFloat16x8(SB), NOSPLIT, $0-16
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX
loop:
	SUBQ $8, CX
	JLT  done
	VMOVUPS   (DI), Y0
	VCVTPS2PH $0, Y0, X0
	VCVTPH2PS X0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $32, DI
	JMP  loop
done:
	VZEROUPPER
	RET

// BFLOAT16 leaves in the upper halves of Y1's elements what Y0 rounds to:
// b + 0x7fff + (b>>16 & 1), or for a NaN b with the quiet bit set.
// Y4, Y5 and Y6 hold 1, 0x7fff and the quiet bit in every element.
#define BFLOAT16 \
	VPSRLD    $16, Y0, Y1 \
	VPAND     Y4, Y1, Y1  \
	VPADDD    Y5, Y1, Y1  \
	VPADDD    Y0, Y1, Y1  \
	VCMPPS    $3, Y0, Y0, Y2 \
	VPOR      Y6, Y0, Y3  \
	VBLENDVPS Y2, Y3, Y1, Y1

#define CONSTANTS \
	MOVL $1, AX \
	VMOVD AX, X4 \
	VPBROADCASTD X4, Y4 \
	MOVL $0x7fff, AX \
	VMOVD AX, X5 \
	VPBROADCASTD X5, Y5 \
	MOVL $0x400000, AX \
	VMOVD AX, X6 \
	VPBROADCASTD X6, Y6

// func encodeBFloat16x8(dst *byte, src *float32, n int)
TEXT ·encodeBFloat16x8(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	CONSTANTS
loop:
	SUBQ $8, CX
	JLT  done
	VMOVDQU (SI), Y0
	BFLOAT16
	VPSRLD    $16, Y1, Y1
	VPACKUSDW Y1, Y1, Y1
	VPERMQ    $0x08, Y1, Y1
	VMOVDQU   X1, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	JMP  loop
done:
	VZEROUPPER
	RET

// func decodeBFloat16x8(dst *float32, src *byte, n int)
TEXT ·decodeBFloat16x8(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	SUBQ $8, CX
	JLT  done
	VPMOVZXWD (SI), Y0
	VPSLLD    $16, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	JMP  loop
done:
	VZEROUPPER
	RET

// func roundBFloat16x8(x *float32, n int)
TEXT ·roundBFloat16x8(SB), NOSPLIT, $0-16
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX
	CONSTANTS
loop:
	SUBQ $8, CX
	JLT  done
	VMOVDQU (DI), Y0
	BFLOAT16
	VPSRLD  $16, Y1, Y1
	VPSLLD  $16, Y1, Y1
	VMOVDQU Y1, (DI)
	ADDQ    $32, DI
	JMP  loop
done:
	VZEROUPPER
	RET
